"""JavaScript for `Page.evaluate` that several tests of pages use to check how a page looks."""

from __future__ import annotations

OUTSIDE = """
[...document.querySelectorAll("figure svg")].flatMap(svg => {
  const box = svg.getBoundingClientRect();
  return [...svg.querySelectorAll("text")].filter(text => {
    const own = text.getBoundingClientRect();
    return own.width && (own.left < box.left - 1 || own.right > box.right + 1 || own.top < box.top - 1
                         || own.bottom > box.bottom + 1);
  }).map(text => text.textContent);
})
"""
"""Returns the labels that lie partly outside of their picture."""
LIGHT = """
  const channel = v => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4 };
  const light = c => { const [r, g, b] = c.match(/[\\d.]+/g).map(Number);
                       return 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b) };
"""
"""Defines `light(colour)`: the relative luminance (WCAG) of a colour that getComputedStyle returned."""
