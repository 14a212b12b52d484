//! SentencePiece's `tokenizer.model`, a message of Protocol Buffers.
//!
//! Source: <https://github.com/google/sentencepiece>, `sentencepiece_model.proto`.

/// A piece of the vocabulary.
pub(super) struct Piece {
    pub(super) text: String,
    pub(super) score: f32,
    /// llama.cpp has the same numbers.
    pub(super) kind: i32,
}

/// The parts of a model that are read.
pub(super) struct SentencePiece {
    pub(super) pieces: Vec<Piece>,
    pub(super) is_unigram: bool,
    pub(super) charsmap: Vec<u8>,
    pub(super) adds_space: bool,
    pub(super) merges_spaces: bool,
}

/// A value of a field.
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    Float(f32),
}

/// Reads fields one by one.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn take(&mut self, bytes: u64) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(usize::try_from(bytes).ok()?)?;
        self.0 = rest;
        Some(taken)
    }

    /// The next field and its number; `None` if the message is damaged.
    fn next(&mut self) -> Option<(u64, Field<'a>)> {
        let tag = self.varint()?;
        let field = match tag & 7 {
            0 => Field::Number(self.varint()?),
            1 => Field::Bytes(self.take(8)?),
            2 => {
                let bytes = self.varint()?;
                Field::Bytes(self.take(bytes)?)
            }
            5 => Field::Float(f32::from_le_bytes(self.take(4)?.try_into().ok()?)),
            _ => return None,
        };
        Some((tag >> 3, field))
    }
}

/// Gives each field of a message to `each`; `None` if it is damaged.
fn read<'a>(message: &'a [u8], mut each: impl FnMut(u64, Field<'a>) -> Option<()>) -> Option<()> {
    let mut fields = Fields(message);
    while !fields.0.is_empty() {
        let (number, field) = fields.next()?;
        each(number, field)?;
    }
    Some(())
}

impl SentencePiece {
    /// The model of a file; `None` if it is damaged, or of another kind.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let mut model = Self {
            pieces: Vec::new(),
            is_unigram: true,
            charsmap: Vec::new(),
            adds_space: true,
            merges_spaces: true,
        };
        read(bytes, |number, field| {
            match (number, field) {
                (1, Field::Bytes(message)) => model.pieces.push(piece(message)?),
                (2, Field::Bytes(trainer)) => read(trainer, |number, field| {
                    if let (3, Field::Number(kind)) = (number, field) {
                        model.is_unigram = kind == 1;
                    }
                    Some(())
                })?,
                (3, Field::Bytes(normalizer)) => read(normalizer, |number, field| {
                    match (number, field) {
                        (2, Field::Bytes(charsmap)) => model.charsmap = charsmap.to_vec(),
                        (3, Field::Number(is)) => model.adds_space = is != 0,
                        (4, Field::Number(is)) => model.merges_spaces = is != 0,
                        _ => {}
                    }
                    Some(())
                })?,
                _ => {}
            }
            Some(())
        })?;
        (!model.pieces.is_empty()).then_some(model)
    }
}

fn piece(message: &[u8]) -> Option<Piece> {
    let mut piece = Piece {
        text: String::new(),
        score: 0.0,
        kind: 1,
    };
    read(message, |number, field| {
        match (number, field) {
            (1, Field::Bytes(text)) => piece.text = String::from_utf8(text.to_vec()).ok()?,
            (2, Field::Float(score)) => piece.score = score,
            (3, Field::Number(kind)) => piece.kind = i32::try_from(kind).ok()?,
            _ => {}
        }
        Some(())
    })?;
    Some(piece)
}
