"""How each action is played: one coroutine an action."""
