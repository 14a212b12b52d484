//! Special functions.

table! {}
