//! Block-quantised number formats: layout, quantise, dequantise.
