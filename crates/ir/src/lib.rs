//! The operations, their types, and the graphs made of them.
