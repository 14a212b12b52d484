//! The messages of Core ML's model format that ML Programs use.
//!
//! Field numbers are facts of Apple's public schema, `mlmodel/format/*.proto` of
//! [coremltools](https://github.com/apple/coremltools/tree/9.0/mlmodel/format). Fields that are not
//! named here are skipped when read. Maps are sorted, so that equal models are equal bytes.

pub mod mil;
pub mod model;
