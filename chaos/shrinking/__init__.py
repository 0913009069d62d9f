"""The shortest plan that still fails in the same way: structure first, then settings, then plain numbers."""
