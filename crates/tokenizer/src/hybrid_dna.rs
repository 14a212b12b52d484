//! HybriDNA's tokenizer: byte-pair encoding and, between `<dna>` and `</dna>`, a token for each six bases.

use rustorch_gguf::Metadata;

use crate::TokenizerError;
use crate::bpe::Bpe;
use crate::pre_tokenizer::PreTokenizer;
use crate::vocab::Vocab;

const BEGIN: &str = "<dna>";
const END: &str = "</dna>";
const UNKNOWN: &str = "<oov>";
/// Behind the texts of tokens for bases, so that they differ from others. It is not shown.
const MARK: &str = "\u{e000}";
/// Bases in a token; the last one is filled up with `A`.
const BASES: usize = 6;

pub(crate) struct HybridDna {
    pub(crate) bpe: Bpe,
    /// Missing if the vocabulary has no such tokens. Then all text is ordinary.
    tokens: Option<Tokens>,
}

struct Tokens {
    begin: u32,
    end: u32,
    unknown: u32,
}

impl HybridDna {
    /// Reads the merges of `vocab`, whose marks are hidden from now on.
    pub(crate) fn new(
        metadata: &Metadata,
        vocab: &mut Vocab,
        pre_tokenizer: &PreTokenizer,
    ) -> Result<Self, TokenizerError> {
        let unknown = vocab.id(UNKNOWN);
        let tokens = || {
            Some(Tokens {
                begin: vocab.id(BEGIN)?,
                end: vocab.id(END)?,
                unknown: unknown?,
            })
        };
        let dna = HybridDna {
            bpe: Bpe::new(metadata, vocab, pre_tokenizer)?,
            tokens: tokens(),
        };
        if let Some(unknown) = unknown {
            vocab.hide(MARK, unknown);
        }
        Ok(dna)
    }

    /// Appends the ids of `text`.
    pub(crate) fn encode(&self, vocab: &Vocab, text: &str, ids: &mut Vec<u32>) {
        let text = self.bpe.escape(text);
        let mut rest = &*text;
        if let Some(tokens) = &self.tokens {
            while let Some((before, dna)) = rest.split_once(BEGIN) {
                self.bpe.encode(vocab, before, ids);
                ids.push(tokens.begin);
                let (bases, behind) = match dna.split_once(END) {
                    Some((bases, behind)) => (bases, Some(behind)),
                    None => (dna, None),
                };
                tokens.encode(vocab, bases, ids);
                ids.extend(behind.map(|_| tokens.end));
                rest = behind.unwrap_or_default();
            }
        }
        self.bpe.encode(vocab, rest, ids);
    }
}

impl Tokens {
    fn encode(&self, vocab: &Vocab, bases: &str, ids: &mut Vec<u32>) {
        let bases = bases.to_ascii_uppercase();
        let token = |bases: &[u8]| {
            let mut text = str::from_utf8(bases).ok()?.to_owned();
            text.extend(std::iter::repeat_n('A', BASES - bases.len()));
            vocab.id(&(text + MARK))
        };
        let chunks = bases.as_bytes().chunks(BASES);
        ids.extend(chunks.map(|bases| token(bases).unwrap_or(self.unknown)));
    }
}
