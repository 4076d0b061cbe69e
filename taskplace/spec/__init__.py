"""What an application's YAML may say: the types of its sections, and how a document is read.

- `application`: the sections, and `Settings`, the whole
- `nodes`: the entries of `topology`, `input` and `output`
- `document`: YAML as plain values, with lines; overrides
- `paths`: paths and URIs of this host
"""
