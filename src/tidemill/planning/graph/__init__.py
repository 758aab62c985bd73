"""A pipeline as a graph: found in the plans of its code, drawn as text and for Mermaid."""
