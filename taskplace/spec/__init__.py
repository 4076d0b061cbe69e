"""What an application's YAML may say: the types of its sections, and how a document is read.

- `document`: YAML as plain values, with lines; overrides
- `nodes`: the entries of `topology`, `input` and `output`
"""
