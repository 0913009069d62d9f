"""Implements `squall completion`, which prints the script that lets a shell complete Squall's commands."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

VARIABLE = "_SQUALL_COMPLETE"
"""Names click's environment variable: if it is set, the program prints completions instead of running."""
ZSH = (
    ("    (( ! $+commands[squall] )) && return 1\n", ""),
    ("zsh_complete squall)", "zsh_complete ${~words[1]})"),
)
FISH = (
    (" squall);", " (eval echo (commandline -opc)[1]));"),
    ('(string split "," $completion)', '(string split -m 1 "," $completion)'),
)
"""Maps parts of click's fish script to the text that replaces them. click's script calls the program by its name, which
works only if the program is on PATH. The changed script calls it as the user typed it, such as ./squall. click's script
also cuts a completion at its first comma; the changed script does not. `ZSH` does the same for zsh's script.
"""


@click.command(
    epilog="""\b
To have it at once:
  eval "$(squall completion bash)"
  eval "$(squall completion zsh)"
  squall completion fish | source

\b
To have it in every shell:
  squall completion bash > ~/.local/share/bash-completion/completions/squall
  squall completion zsh > ~/.zfunc/_squall      with fpath+=~/.zfunc before compinit
  squall completion fish > ~/.config/fish/completions/squall.fish"""
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> int:
    """Print what SHELL needs to complete commands, options, kinds of faults, mutants, workloads, plans and runs. It
    works for `squall` and for `./squall`.
    """
    click.echo(completion_script(shell), nl=False)
    return 0


def completion_script(shell: str) -> str:
    """Return the completion script that the shell sources. click prints a warning if bash is older than click supports.
    """
    completer = get_completion_class(shell)
    assert completer is not None, shell
    text = completer(click.Command("squall"), {}, "squall", VARIABLE).source()
    for old, new in {"zsh": ZSH, "fish": FISH}.get(shell, ()):
        assert old in text, f"click's lines for {shell} have changed: {old}"
        text = text.replace(old, new)
    return text.strip("\n") + "\n"
