//! Vocabularies are those of Hugging Face's trainer on the same text; see `scripts/bpe-goldens.py`.

use rustorch_gguf::Metadata;
use rustorch_tokenizer::{BpeTrainer, EncodeOptions, TextPieces, Tokenizer};

const TEXT: &[u8] = include_bytes!("../goldens/bpe/text.txt");
const VOCAB: &str = include_str!("../goldens/bpe/vocab.json");

fn golden(key: &str) -> Vec<String> {
    let vocab: serde_json::Value = serde_json::from_str(VOCAB).unwrap();
    serde_json::from_value(vocab[key].clone()).unwrap()
}

#[test]
fn merges_and_ids_are_those_of_hugging_faces_trainer() {
    let mut trainer = BpeTrainer::new(5000).unwrap();
    let mut pieces = TextPieces::new(TEXT);
    while let Some(piece) = pieces.next_piece().unwrap() {
        trainer.feed(piece);
    }
    let vocab = trainer.train();
    // Fewer than were asked for: the text has no more pairs.
    assert_eq!(vocab.tokens().len(), 4374);
    assert_eq!(vocab.merges(), golden("merges"));
    assert_eq!(vocab.tokens(), golden("tokens"));
}

#[test]
fn a_smaller_vocabulary_is_the_beginning_of_a_larger_one() {
    let text = str::from_utf8(TEXT).unwrap();
    let mut trainer = BpeTrainer::new(700).unwrap();
    trainer.feed(text);
    let vocab = trainer.train();
    assert_eq!(vocab.tokens(), &golden("tokens")[..700]);
    let mut metadata = Metadata::new();
    vocab.describe(&mut metadata);
    let tokenizer = Tokenizer::from_gguf(&metadata).unwrap();
    assert_eq!((tokenizer.bos(), tokenizer.eos()), (Some(0), Some(1)));
    let ids = tokenizer.encode(text, EncodeOptions::default());
    assert!(ids.len() < text.len() / 2);
    assert_eq!(tokenizer.decode(&ids), text);
}
