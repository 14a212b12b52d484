//! Reading an archive by its central directory.

use std::io::{self, Read};

use flate2::Crc;
use flate2::bufread::DeflateDecoder;
use indexmap::IndexMap;

use rustorch_gguf::quoted;

use super::{
    CENTRAL, CENTRAL_BYTES, DEFLATED, END, END_BYTES, END64, END64_BYTES, LOCAL, LOCAL_BYTES,
    LOCATOR64, LOCATOR64_BYTES, STORED, ZIP64,
};
use crate::error::{FileError, FileResult};
use crate::source::Source;

/// The largest growth of deflated bytes: a repetition of 258 bytes takes two bits.
const LARGEST_RATIO: u64 = 1032;

/// Bytes that are decompressed at once.
const CHUNK: usize = 64 * 1024;

/// An archive whose structure was checked: every entry's data lies in it, apart from all others'.
pub(crate) struct Archive {
    source: Source,
    entries: IndexMap<String, Entry>,
    /// Bytes that an entry may decompress to.
    limit: u64,
}

/// An entry of the central directory.
struct Entry {
    method: u16,
    crc: u32,
    compressed: u64,
    size: u64,
    /// The offset of its local header.
    header: u64,
    /// The offset of its data.
    data: u64,
}

/// The directory, as the archive's end describes it.
struct Directory {
    begin: u64,
    bytes: u64,
    count: u64,
}

impl Archive {
    /// Reads the directory of an archive. No entry may decompress to more than `limit` bytes.
    pub(crate) fn read(source: &Source, limit: u64) -> FileResult<Self> {
        let directory = Directory::find(source)?;
        let place = "the zip archive's directory";
        let bytes = source.part(place, directory.begin, directory.bytes)?;
        let mut fields = Fields::new(place, &bytes);
        let mut entries = IndexMap::new();
        while !fields.is_at_end() {
            let (name, mut entry) = Entry::read(&mut fields)?;
            entry.data = entry.find_data(&name, source, directory.begin)?;
            if entries.contains_key(&name) {
                return Err(FileError::damaged(
                    place,
                    format!("{} is there twice", quoted(&name)),
                ));
            }
            entries.insert(name, entry);
        }
        if entries.len() as u64 != directory.count {
            let problem = format!(
                "{} entries were announced, but {} are there",
                directory.count,
                entries.len()
            );
            return Err(FileError::damaged(place, problem));
        }
        check_apart(&entries)?;
        let source = source.clone();
        Ok(Self {
            source,
            entries,
            limit,
        })
    }

    /// The entries' names in the directory's order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// The data of an entry, where it is stored, or decompressed. Checksums are compared only for
    /// decompressed data, since stored data need not be read at all.
    pub(crate) fn data(&self, name: &str) -> Option<FileResult<Source>> {
        self.data_within(name, self.limit)
    }

    /// [`Archive::data`] that may decompress to `limit` bytes.
    pub(crate) fn data_within(&self, name: &str, limit: u64) -> Option<FileResult<Source>> {
        let entry = self.entries.get(name)?;
        let stored = (self.source).part(place(name), entry.data, entry.compressed);
        Some(stored.and_then(|stored| match entry.method {
            STORED => Ok(stored),
            _ => entry.inflate(name, &stored, limit.min(self.limit)),
        }))
    }

    /// Size of an entry's data, and its first bytes.
    pub(crate) fn begin(&self, name: &str) -> Option<FileResult<(u64, Source)>> {
        let entry = self.entries.get(name)?;
        let stored = (self.source).part(place(name), entry.data, entry.compressed);
        let begin = stored.and_then(|stored| match entry.method {
            STORED => Ok(stored),
            _ => {
                let mut begin = Vec::new();
                let mut decoder = DeflateDecoder::new(&*stored).take(CHUNK as u64);
                (decoder.read_to_end(&mut begin))
                    .map_err(|error| entry.wrong_data(name, &error))?;
                Ok(begin.into())
            }
        });
        Some(begin.map(|begin| (entry.size, begin)))
    }
}

impl Directory {
    /// Looks for the last record, behind which there is only a comment.
    fn find(source: &Source) -> FileResult<Self> {
        const LONGEST_COMMENT: u64 = 0xffff;
        let size = source.len() as u64;
        let first = size.saturating_sub(END_BYTES + LONGEST_COMMENT);
        let found = (first..=size.saturating_sub(END_BYTES)).rev().find(|&at| {
            let record = &source[at as usize..];
            let comment = record
                .get(20..22)
                .map(|b| u64::from(b[0]) | u64::from(b[1]) << 8);
            record.starts_with(&END.to_le_bytes()) && comment == Some(size - at - END_BYTES)
        });
        let place = "the zip archive's end";
        let Some(at) = found else {
            let problem = "the file has no end of a zip archive, so it is cut short";
            return Err(FileError::damaged(place, problem));
        };
        let end = source.part(place, at, END_BYTES)?;
        let mut fields = Fields::new(place, &end[4..]);
        let disks = [fields.u16()?, fields.u16()?];
        let counts = [fields.u16()?, fields.u16()?].map(u64::from);
        let (bytes, begin) = (u64::from(fields.u32()?), u64::from(fields.u32()?));
        let directory = match Self::find64(source, at)? {
            Some(directory) => directory,
            None if disks == [0, 0] && counts[0] == counts[1] => Self {
                begin,
                bytes,
                count: counts[0],
            },
            None => return Err(several_files()),
        };
        let ends = directory.begin.checked_add(directory.bytes);
        match ends.is_some_and(|end| end <= at) {
            true => Ok(directory),
            false => {
                let problem = format!(
                    "the directory of {} bytes at byte {} is not before it",
                    directory.bytes, directory.begin
                );
                Err(FileError::damaged(place, problem))
            }
        }
    }

    /// The directory by the record with numbers of 64 bits, which a locator before the last record leads to.
    fn find64(source: &Source, end: u64) -> FileResult<Option<Self>> {
        let place = "the zip archive's end for zip64";
        let Some(locator) = end.checked_sub(LOCATOR64_BYTES) else {
            return Ok(None);
        };
        let locator = source.part(place, locator, LOCATOR64_BYTES)?;
        let mut fields = Fields::new(place, &locator);
        if fields.u32()? != LOCATOR64 {
            return Ok(None);
        }
        fields.u32()?;
        let record = source.part(place, fields.u64()?, END64_BYTES)?;
        let mut fields = Fields::new(place, &record);
        if fields.u32()? != END64 {
            return Err(FileError::damaged(
                place,
                "its locator leads somewhere else",
            ));
        }
        // Its size, the versions that wrote it and that are needed.
        fields.skip(12)?;
        let disks = [fields.u32()?, fields.u32()?];
        let counts = [fields.u64()?, fields.u64()?];
        let (bytes, begin) = (fields.u64()?, fields.u64()?);
        match disks == [0, 0] && counts[0] == counts[1] {
            true => Ok(Some(Self {
                begin,
                bytes,
                count: counts[0],
            })),
            false => Err(several_files()),
        }
    }
}

fn several_files() -> FileError {
    let found = "an archive of several files";
    FileError::unsupported("the zip archive", found, "put it together with `zip -s 0`")
}

fn place(name: &str) -> String {
    format!("entry {}", quoted(name))
}

impl Entry {
    /// The next entry of the directory.
    fn read(fields: &mut Fields<'_>) -> FileResult<(String, Self)> {
        fields.expect(CENTRAL, CENTRAL_BYTES)?;
        fields.skip(4)?;
        let (flags, method) = (fields.u16()?, fields.u16()?);
        fields.skip(4)?;
        let crc = fields.u32()?;
        let (compressed, size) = (fields.u32()?, fields.u32()?);
        let lens = [fields.u16()?, fields.u16()?, fields.u16()?].map(usize::from);
        let disk = fields.u16()?;
        fields.skip(6)?;
        let header = fields.u32()?;
        let name = str::from_utf8(fields.take(lens[0])?);
        let name = name.map_err(|_| FileError::damaged(fields.place, "a name is not UTF-8"))?;
        let mut wide = Fields::new(fields.place, zip64(fields.place, fields.take(lens[1])?)?);
        fields.take(lens[2])?;
        // Numbers that do not fit are in the extra field, in this order.
        let mut widen = |narrow: u32| match narrow {
            u32::MAX => wide.u64(),
            narrow => Ok(u64::from(narrow)),
        };
        let (size, compressed, header) = (widen(size)?, widen(compressed)?, widen(header)?);
        if !matches!(disk, 0 | u16::MAX) {
            return Err(several_files());
        }
        let entry = Self {
            method,
            crc,
            compressed,
            size,
            header,
            data: 0,
        };
        entry.check(name, flags)?;
        Ok((name.to_owned(), entry))
    }

    /// Fails on unsupported entries, and on impossible sizes.
    fn check(&self, name: &str, flags: u16) -> FileResult<()> {
        let advice = "write the archive with NumPy or PyTorch";
        if flags & 1 != 0 {
            return Err(FileError::unsupported(
                place(name),
                "an encrypted entry",
                advice,
            ));
        }
        let is_possible = match self.method {
            STORED => self.size == self.compressed,
            DEFLATED => self.size <= self.compressed.saturating_mul(LARGEST_RATIO),
            other => {
                let found = format!("compression method {other}");
                return Err(FileError::unsupported(place(name), found, advice));
            }
        };
        match is_possible {
            true => Ok(()),
            false => {
                let problem = format!(
                    "it declares {} bytes, which its {} in the file cannot hold",
                    self.size, self.compressed
                );
                Err(FileError::damaged(place(name), problem))
            }
        }
    }

    /// The offset of the data: behind the local header, which has to be before the directory.
    fn find_data(&self, name: &str, source: &Source, directory: u64) -> FileResult<u64> {
        let local = place(name);
        let header = source.part(&local, self.header, LOCAL_BYTES)?;
        let mut fields = Fields::new(&local, &header);
        fields.expect(LOCAL, LOCAL_BYTES)?;
        fields.skip(22)?;
        let lens = [fields.u16()?, fields.u16()?].map(u64::from);
        let written = source.part(&local, self.header + LOCAL_BYTES, lens[0])?;
        if *written != *name.as_bytes() {
            return Err(FileError::damaged(
                local,
                "its header has another name than the directory",
            ));
        }
        let data = self.header + LOCAL_BYTES + lens[0] + lens[1];
        let end = data.checked_add(self.compressed);
        match end.is_some_and(|end| end <= directory) {
            true => Ok(data),
            false => {
                let problem = format!(
                    "its {} bytes at byte {data} reach into the directory at byte {directory}",
                    self.compressed
                );
                Err(FileError::damaged(local, problem))
            }
        }
    }

    fn wrong_data(&self, name: &str, error: &io::Error) -> FileError {
        FileError::damaged(
            place(name),
            format!("its compressed data is wrong ({error})"),
        )
    }

    /// The data, decompressed. Memory is taken as it comes.
    fn inflate(&self, name: &str, deflated: &Source, limit: u64) -> FileResult<Source> {
        if self.size > limit {
            return Err(FileError::TooLarge {
                place: place(name),
                bytes: self.size,
                limit: format!("the limit is {limit}"),
            });
        }
        let wrong = |problem: String| FileError::damaged(place(name), problem);
        let mut decoder = DeflateDecoder::new(&**deflated);
        let (mut data, mut crc) = (Vec::new(), Crc::new());
        let mut chunk = vec![0; CHUNK.min(self.size as usize + 1)];
        loop {
            let read = decoder.read(&mut chunk);
            let read = read.map_err(|error| self.wrong_data(name, &error))?;
            if read == 0 {
                break;
            }
            if (data.len() + read) as u64 > self.size {
                return Err(wrong(format!(
                    "it decompresses to more than {} bytes",
                    self.size
                )));
            }
            crc.update(&chunk[..read]);
            let reserved = data.try_reserve(read);
            reserved.map_err(|_| crate::elements::no_memory(name, data.len() + read))?;
            data.extend_from_slice(&chunk[..read]);
        }
        if data.len() as u64 != self.size {
            let problem = format!("it decompresses to {} of {} bytes", data.len(), self.size);
            return Err(wrong(problem));
        }
        match crc.sum() == self.crc {
            true => Ok(data.into()),
            false => Err(wrong("its checksum differs".to_owned())),
        }
    }
}

/// Fails if the same bytes belong to two entries: so does a small file declare many large ones.
fn check_apart(entries: &IndexMap<String, Entry>) -> FileResult<()> {
    let mut places: Vec<(u64, u64, &str)> = (entries.iter())
        .map(|(name, entry)| (entry.header, entry.data + entry.compressed, name.as_str()))
        .collect();
    places.sort_unstable();
    for pair in places.windows(2) {
        let [(_, end, before), (begin, _, name)] = [pair[0], pair[1]];
        if begin < end {
            let problem = format!("its bytes overlap those of {}", quoted(before));
            return Err(FileError::damaged(place(name), problem));
        }
    }
    Ok(())
}

/// The extra field for numbers of 64 bits, or nothing.
fn zip64<'a>(place: &'a str, extra: &'a [u8]) -> FileResult<&'a [u8]> {
    let mut fields = Fields::new(place, extra);
    while fields.rest.len() >= 4 {
        let (id, len) = (fields.u16()?, fields.u16()?);
        let field = fields.take(len.into())?;
        if id == ZIP64 {
            return Ok(field);
        }
    }
    Ok(&[])
}

/// Little-endian numbers, one after the other.
struct Fields<'a> {
    place: &'a str,
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    fn new(place: &'a str, rest: &'a [u8]) -> Self {
        Self { place, rest }
    }

    fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    fn take(&mut self, len: usize) -> FileResult<&'a [u8]> {
        let Some((taken, rest)) = self.rest.split_at_checked(len) else {
            let problem = format!("{len} bytes should follow, {} do", self.rest.len());
            return Err(FileError::damaged(self.place, problem));
        };
        self.rest = rest;
        Ok(taken)
    }

    fn skip(&mut self, len: usize) -> FileResult<()> {
        self.take(len).map(drop)
    }

    fn number(&mut self, width: usize) -> FileResult<u64> {
        let bytes = self.take(width)?;
        Ok(bytes.iter().rev().fold(0, |n, &b| n << 8 | u64::from(b)))
    }

    fn u16(&mut self) -> FileResult<u16> {
        Ok(self.number(2)? as u16)
    }

    fn u32(&mut self) -> FileResult<u32> {
        Ok(self.number(4)? as u32)
    }

    fn u64(&mut self) -> FileResult<u64> {
        self.number(8)
    }

    /// Fails unless a record of this kind follows.
    fn expect(&mut self, signature: u32, bytes: u64) -> FileResult<()> {
        let left = self.rest.len() as u64;
        match left >= bytes && self.u32()? == signature {
            true => Ok(()),
            false => {
                let problem = "no entry begins there";
                Err(FileError::damaged(self.place, problem))
            }
        }
    }
}
