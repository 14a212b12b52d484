//! Texts as tokens on disk, so that they may be larger than memory.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustorch_gguf::{Gguf, GgufWriter, Metadata};
use rustorch_tokenizer::{BpeTrainer, EncodeOptions, TextPieces, Tokenizer};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::TrainError;

/// Bytes of a token on disk: a `u32`, little-endian.
const TOKEN: u64 = 4;

/// A text's file, and its contents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Text {
    /// The file.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// The SHA-256 of its contents, in hexadecimal digits.
    pub sha256: String,
}

impl Text {
    /// Reads a file once. `read` gets the number of bytes as they are read.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or is empty.
    pub fn open(path: &Path, mut read: impl FnMut(u64)) -> Result<Self, TrainError> {
        let mut file = open(path)?;
        let (mut hash, mut bytes, mut block) = (Sha256::new(), 0, vec![0; 1 << 20]);
        loop {
            let count = file
                .read(&mut block)
                .map_err(TrainError::io(path, "read the text"))?;
            if count == 0 {
                break;
            }
            hash.update(&block[..count]);
            bytes += count as u64;
            read(count as u64);
        }
        if bytes == 0 {
            return Err(TrainError::Setting(format!(
                "{}: the text is empty",
                path.display()
            )));
        }
        Ok(Self {
            path: path.to_owned(),
            bytes,
            sha256: hash
                .finalize()
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect(),
        })
    }

    /// Calls `each` with the text, piece by piece.
    fn pieces(
        &self,
        mut each: impl FnMut(&str) -> io::Result<()>,
        at: &Path,
    ) -> Result<(), TrainError> {
        let mut pieces = TextPieces::new(open(&self.path)?);
        loop {
            let piece = pieces.next_piece().map_err(|problem| TrainError::Text {
                path: self.path.clone(),
                problem,
            })?;
            match piece {
                Some(piece) => each(piece).map_err(TrainError::io(at, "write the tokens"))?,
                None => return Ok(()),
            }
        }
    }
}

fn open(path: &Path) -> Result<BufReader<File>, TrainError> {
    let file = File::open(path).map_err(TrainError::io(path, "open the text"))?;
    Ok(BufReader::new(file))
}

/// The origin of the tokens. It is kept beside them, so that a resumed run does not make them again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prepared {
    /// The training texts.
    pub texts: Vec<Text>,
    /// The validation text, if there is one.
    pub validation: Option<Text>,
    /// The requested vocabulary size; `None` for the vocabulary of `model`.
    pub vocab: Option<usize>,
    /// The files of the model that is fine-tuned.
    pub model: Vec<Text>,
}

/// Texts as tokens, and their vocabulary.
pub struct Corpus {
    /// The keys that describe the vocabulary.
    pub metadata: Metadata,
    /// The vocabulary.
    pub tokenizer: Tokenizer,
    /// The texts.
    pub tokens: Tokens,
    /// The validation text.
    pub validation: Option<Tokens>,
}

impl Corpus {
    /// Makes a vocabulary of the texts, unless `metadata` has one, and writes their tokens to `folder`. If
    /// `folder` has the tokens of the same texts, they are used. Every text begins with the BOS token and ends
    /// with the EOS token, if the vocabulary has them. `progress` gets the stage, and the number of bytes of
    /// the texts as they are done.
    ///
    /// # Errors
    /// Fails if a text cannot be read or is not UTF-8, or if the tokens cannot be written.
    pub fn prepare(
        prepared: &Prepared,
        metadata: Option<Metadata>,
        folder: &Path,
        mut progress: impl FnMut(&'static str, u64),
    ) -> Result<Self, TrainError> {
        let [record, vocabulary, tokens, validation] = [
            "texts.json",
            "vocabulary.gguf",
            "tokens.bin",
            "validation.bin",
        ]
        .map(|name| folder.join(name));
        let known = fs::read(&record)
            .ok()
            .and_then(|text| serde_json::from_slice::<Prepared>(&text).ok());
        // A run that was killed may have left some of them.
        let mut files = [&vocabulary, &tokens]
            .into_iter()
            .chain(prepared.validation.as_ref().map(|_| &validation));
        if known.as_ref() != Some(prepared) || !files.all(|file| file.exists()) {
            if known.is_some() {
                fs::remove_file(&record).map_err(TrainError::io(&record, "remove the file"))?;
            }
            let metadata = match (metadata, prepared.vocab) {
                (Some(metadata), _) => metadata,
                (None, size) => {
                    let mut trainer = BpeTrainer::new(size.unwrap_or(BpeTrainer::MIN_VOCAB))?;
                    for text in &prepared.texts {
                        let feed = |piece: &str| {
                            trainer.feed(piece);
                            progress("vocabulary", piece.len() as u64);
                            Ok(())
                        };
                        text.pieces(feed, &text.path)?;
                    }
                    let mut metadata = Metadata::new();
                    trainer.train().describe(&mut metadata);
                    metadata
                }
            };
            let tokenizer = Tokenizer::from_gguf(&metadata)?;
            write_tokens(&tokens, &prepared.texts, &tokenizer, &mut progress)?;
            if let Some(text) = &prepared.validation {
                write_tokens(
                    &validation,
                    std::slice::from_ref(text),
                    &tokenizer,
                    &mut progress,
                )?;
            }
            GgufWriter::new(metadata).write(&vocabulary, |_, _| Ok(()))?;
            let text = serde_json::to_vec_pretty(prepared).map_err(io::Error::from);
            let written = text.and_then(|text| write_whole(&record, |out| out.write_all(&text)));
            written.map_err(TrainError::io(&record, "write the file"))?;
        }
        let metadata = Gguf::open(&vocabulary)?.metadata;
        Ok(Self {
            tokenizer: Tokenizer::from_gguf(&metadata)?,
            metadata,
            tokens: Tokens::open(&tokens)?,
            validation: prepared
                .validation
                .as_ref()
                .map(|_| Tokens::open(&validation))
                .transpose()?,
        })
    }
}

/// Writes the tokens of texts to a file.
fn write_tokens(
    path: &Path,
    texts: &[Text],
    tokenizer: &Tokenizer,
    progress: &mut impl FnMut(&'static str, u64),
) -> Result<(), TrainError> {
    let written = |error| TrainError::io(path, "write the tokens")(error);
    let folder = path.parent().unwrap_or(Path::new("."));
    let file = tempfile::NamedTempFile::new_in(folder).map_err(written)?;
    let mut out = BufWriter::with_capacity(1 << 20, file);
    let mut put = |ids: &[u32]| {
        ids.iter()
            .try_for_each(|id| out.write_all(&id.to_le_bytes()))
    };
    for text in texts {
        let bos = tokenizer.bos().filter(|_| tokenizer.adds_bos());
        put(bos.as_slice()).map_err(written)?;
        let encode = |piece: &str| {
            progress("tokens", piece.len() as u64);
            put(&tokenizer.encode(piece, EncodeOptions::default()))
        };
        text.pieces(encode, path)?;
        put(tokenizer.eos().as_slice()).map_err(written)?;
    }
    let file = out
        .into_inner()
        .map_err(|error| written(error.into_error()))?;
    file.persist(path).map_err(|error| written(error.error))?;
    Ok(())
}

/// A file that appears under its name only when it is whole.
fn write_whole(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".tmp");
    // The mode of an ordinary new file, before the user's mask; the default is for secrets.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let mut out = BufWriter::new(builder.tempfile_in(folder.unwrap_or(Path::new(".")))?);
    write(&mut out)?;
    let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}

/// Tokens in a file.
pub struct Tokens {
    path: PathBuf,
    file: Mutex<File>,
    len: u64,
}

impl Tokens {
    fn open(path: &Path) -> Result<Self, TrainError> {
        let open = || {
            let file = File::open(path)?;
            let len = file.metadata()?.len() / TOKEN;
            Ok((file, len))
        };
        let (file, len) = open().map_err(TrainError::io(path, "open the tokens"))?;
        Ok(Self {
            path: path.to_owned(),
            file: Mutex::new(file),
            len,
        })
    }

    /// Number of tokens.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns whether the data set is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// `count` tokens, beginning at `begin`.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or lacks the tokens.
    pub fn read(&self, begin: u64, count: usize) -> Result<Vec<u32>, TrainError> {
        let mut bytes = vec![0; count * TOKEN as usize];
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let found = file.seek(SeekFrom::Start(begin * TOKEN));
        let read = found.and_then(|_| file.read_exact(&mut bytes));
        read.map_err(TrainError::io(&self.path, "read the tokens"))?;
        let ids = bytes.as_chunks::<{ TOKEN as usize }>().0.iter();
        Ok(ids.map(|&id| u32::from_le_bytes(id)).collect())
    }
}
