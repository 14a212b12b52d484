//! The slow f64 definition of every primitive.
