"""Searches the smallest plan that still fails in the same way: first its structure, then settings, then plain numbers.
"""
