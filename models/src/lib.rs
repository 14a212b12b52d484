//! `classics-13m`, a language model of 13 million weights, trained on public-domain books for this
//! project. llama.cpp's results for it are here, too.
//!
//! It is a crate of its own because of its size: a package may have 10 MiB.

/// Name of the model in every type.
pub const NAME: &str = "classics-13m";

/// Puts bytes where vector instructions like to find them.
#[repr(C, align(64))]
struct Aligned<T: ?Sized>(T);

static ALIGNED: &Aligned<[u8]> = &Aligned(*include_bytes!("../classics-13m-Q4_K_M.gguf"));

/// The model in the type `Q4_K_M`, a GGUF file. It begins at a multiple of 64 bytes.
pub static MODEL: &[u8] = &ALIGNED.0;

/// llama.cpp's answers for the model in several types, which are made of the original weights: lines of
/// JSON, each a prompt with its tokens, the best logits of every step, and the text that follows.
pub mod goldens {
    /// For [`MODEL`](super::MODEL).
    pub const Q4_K_M: &str = include_str!("../goldens/classics-13m-Q4_K_M.jsonl");
    /// For `Q5_K_M`.
    pub const Q5_K_M: &str = include_str!("../goldens/classics-13m-Q5_K_M.jsonl");
    /// For `Q6_K`.
    pub const Q6_K: &str = include_str!("../goldens/classics-13m-Q6_K.jsonl");
    /// For `Q8_0`.
    pub const Q8_0: &str = include_str!("../goldens/classics-13m-Q8_0.jsonl");
    /// For `F16`, the original.
    pub const F16: &str = include_str!("../goldens/classics-13m-f16.jsonl");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_is_a_gguf_file_where_vectors_like_it() {
        assert_eq!(MODEL[..4], *b"GGUF");
        assert_eq!(MODEL.as_ptr().addr() % align_of::<Aligned<[u8; 0]>>(), 0);
    }
}
