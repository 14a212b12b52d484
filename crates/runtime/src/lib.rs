//! Backends, planning, execution and failing over.
