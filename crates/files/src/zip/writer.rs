//! Writing an archive, entry by entry.

use std::io::{self, Seek, SeekFrom, Write};

use flate2::Crc;
use flate2::write::DeflateEncoder;

use super::{CENTRAL, DEFLATED, END, END64, LOCAL, LOCAL_BYTES, LOCATOR64, STORED, ZIP64};
use crate::error::{FileError, FileResult};

/// Entries that may become as large as this get numbers of 64 bits. Data that does not compress grows by less than the
/// rest.
const ZIP64_FROM: u64 = 0xf000_0000;

/// The version needed to read the archive: zip64.
const VERSION: u16 = 45;

/// Names are UTF-8.
const FLAGS: u16 = 1 << 11;

/// The first day that the format knows, so that equal tensors are equal files.
const DATE: u16 = 1 << 5 | 1;

/// The extra field that fills up to an alignment, PyTorch's "FB".
const PADDING: u16 = 0x4246;

/// Compression of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Compression {
    /// No compression: such data can be mapped.
    #[default]
    Stored,
    /// Deflate: smaller, but must be decompressed.
    Deflated,
}

impl Compression {
    fn method(self) -> u16 {
        match self {
            Self::Stored => STORED,
            Self::Deflated => DEFLATED,
        }
    }
}

/// An archive that is being written.
pub(crate) struct Writer<'a, W> {
    out: &'a mut W,
    entries: Vec<Written>,
    zip64_from: u64,
}

struct Written {
    name: String,
    method: u16,
    header: u64,
    sizes: Sizes,
}

/// The facts of an entry when it is written.
#[derive(Clone, Copy, Default)]
struct Sizes {
    crc: u32,
    compressed: u64,
    size: u64,
}

fn failed() -> impl FnOnce(io::Error) -> FileError {
    FileError::io("write the archive")
}

impl<'a, W: Write + Seek> Writer<'a, W> {
    pub(crate) fn new(out: &'a mut W) -> Self {
        Self::with_zip64_from(out, ZIP64_FROM)
    }

    /// A writer that uses zip64 for numbers from `zip64_from` on.
    pub(crate) fn with_zip64_from(out: &'a mut W, zip64_from: u64) -> Self {
        Self {
            out,
            entries: Vec::new(),
            zip64_from,
        }
    }

    /// Writes an entry of `size` bytes, which `fill` writes; stored ones begin at a multiple of `alignment`.
    pub(crate) fn add(
        &mut self,
        name: &str,
        compression: Compression,
        size: u64,
        alignment: u64,
        fill: impl FnOnce(&mut dyn Write) -> FileResult<()>,
    ) -> FileResult<()> {
        let name_len = u16::try_from(name.len()).map_err(|_| FileError::Unwritable {
            name: name.to_owned(),
            problem: "a zip archive holds no name of more than 65535 bytes".to_owned(),
            advice: "choose a shorter name".to_owned(),
        })?;
        let is_wide = size >= self.zip64_from;
        let method = compression.method();
        let header = self.out.stream_position().map_err(failed())?;
        let zip64_len = if is_wide { 20 } else { 0 };
        let before = header + LOCAL_BYTES + u64::from(name_len) + zip64_len;
        let padding = match compression {
            Compression::Stored => padding(before, alignment),
            Compression::Deflated => 0,
        };
        let mut local = Vec::new();
        local.extend(LOCAL.to_le_bytes());
        for field in [VERSION, FLAGS, method, 0, DATE] {
            local.extend(field.to_le_bytes());
        }
        local.extend([0; 12]);
        local.extend(name_len.to_le_bytes());
        local.extend(((zip64_len + padding) as u16).to_le_bytes());
        local.extend(name.bytes());
        local.extend(std::iter::repeat_n(0, zip64_len as usize));
        if padding > 0 {
            local.extend(PADDING.to_le_bytes());
            local.extend((padding as u16 - 4).to_le_bytes());
            local.extend(std::iter::repeat_n(0, padding as usize - 4));
        }
        self.out.write_all(&local).map_err(failed())?;
        let sizes = self.fill(compression, fill)?;
        self.patch(header, name_len, is_wide, sizes)?;
        self.entries.push(Written {
            name: name.to_owned(),
            method,
            header,
            sizes,
        });
        Ok(())
    }

    /// Writes an entry's data.
    fn fill(
        &mut self,
        compression: Compression,
        fill: impl FnOnce(&mut dyn Write) -> FileResult<()>,
    ) -> FileResult<Sizes> {
        let begin = self.out.stream_position().map_err(failed())?;
        let (crc, size) = match compression {
            Compression::Stored => {
                let mut data = Summed::new(&mut *self.out);
                fill(&mut data)?;
                (data.crc.sum(), data.bytes)
            }
            Compression::Deflated => {
                let encoder = DeflateEncoder::new(&mut *self.out, flate2::Compression::default());
                let mut data = Summed::new(encoder);
                fill(&mut data)?;
                data.out.finish().map_err(failed())?;
                (data.crc.sum(), data.bytes)
            }
        };
        let end = self.out.stream_position().map_err(failed())?;
        Ok(Sizes {
            crc,
            compressed: end - begin,
            size,
        })
    }

    /// Writes checksum and sizes where the local header has room for them.
    fn patch(&mut self, header: u64, name_len: u16, is_wide: bool, sizes: Sizes) -> FileResult<()> {
        let end = self.out.stream_position().map_err(failed())?;
        let mut fields = sizes.crc.to_le_bytes().to_vec();
        let narrow = |n: u64| if is_wide { u32::MAX } else { n as u32 };
        fields.extend(narrow(sizes.compressed).to_le_bytes());
        fields.extend(narrow(sizes.size).to_le_bytes());
        let mut write = |at: u64, bytes: &[u8]| {
            self.out.seek(SeekFrom::Start(at))?;
            self.out.write_all(bytes)
        };
        write(header + 14, &fields).map_err(failed())?;
        if is_wide {
            let extra = zip64(&[sizes.size, sizes.compressed]);
            write(header + LOCAL_BYTES + u64::from(name_len), &extra).map_err(failed())?;
        }
        self.out.seek(SeekFrom::Start(end)).map_err(failed())?;
        Ok(())
    }

    /// Writes the directory.
    pub(crate) fn finish(self) -> FileResult<()> {
        let begin = self.out.stream_position().map_err(failed())?;
        let mut directory = Vec::new();
        for entry in &self.entries {
            self.describe(entry, &mut directory);
        }
        let (bytes, count) = (directory.len() as u64, self.entries.len() as u64);
        let is_wide = begin >= self.zip64_from
            || bytes >= self.zip64_from
            || count >= self.zip64_from.min(u16::MAX.into());
        if is_wide {
            let at = begin + bytes;
            directory.extend(END64.to_le_bytes());
            directory.extend(44u64.to_le_bytes());
            directory.extend(VERSION.to_le_bytes());
            directory.extend(VERSION.to_le_bytes());
            directory.extend([0; 8]);
            for number in [count, count, bytes, begin] {
                directory.extend(number.to_le_bytes());
            }
            directory.extend(LOCATOR64.to_le_bytes());
            directory.extend([0; 4]);
            directory.extend(at.to_le_bytes());
            directory.extend(1u32.to_le_bytes());
        }
        let narrow = |n: u64| if is_wide { u32::MAX } else { n as u32 };
        directory.extend(END.to_le_bytes());
        directory.extend([0; 4]);
        for _ in 0..2 {
            directory.extend((narrow(count) as u16).to_le_bytes());
        }
        directory.extend(narrow(bytes).to_le_bytes());
        directory.extend(narrow(begin).to_le_bytes());
        directory.extend([0; 2]);
        self.out.write_all(&directory).map_err(failed())
    }

    /// An entry of the directory.
    fn describe(&self, entry: &Written, directory: &mut Vec<u8>) {
        let Sizes {
            crc,
            compressed,
            size,
        } = entry.sizes;
        let numbers = [size, compressed, entry.header];
        let wide: Vec<u64> = (numbers.iter().copied())
            .filter(|&n| n >= self.zip64_from)
            .collect();
        let extra = if wide.is_empty() {
            vec![]
        } else {
            zip64(&wide)
        };
        let narrow = |n: u64| match n >= self.zip64_from {
            true => u32::MAX,
            false => n as u32,
        };
        directory.extend(CENTRAL.to_le_bytes());
        for field in [VERSION, VERSION, FLAGS, entry.method, 0, DATE] {
            directory.extend(field.to_le_bytes());
        }
        directory.extend(crc.to_le_bytes());
        directory.extend(narrow(compressed).to_le_bytes());
        directory.extend(narrow(size).to_le_bytes());
        // The name's length was checked when the entry was written.
        for len in [entry.name.len(), extra.len()] {
            directory.extend((len as u16).to_le_bytes());
        }
        directory.extend([0; 10]);
        directory.extend(narrow(entry.header).to_le_bytes());
        directory.extend(entry.name.bytes());
        directory.extend(extra);
    }
}

/// The extra field for numbers of 64 bits.
fn zip64(numbers: &[u64]) -> Vec<u8> {
    let mut field = ZIP64.to_le_bytes().to_vec();
    field.extend((8 * numbers.len() as u16).to_le_bytes());
    numbers.iter().for_each(|n| field.extend(n.to_le_bytes()));
    field
}

/// Bytes of an extra field that brings what follows `before` to an alignment: none, or at least its four of header.
fn padding(before: u64, alignment: u64) -> u64 {
    match before.next_multiple_of(alignment) - before {
        small @ 1..4 => small + alignment,
        other => other,
    }
}

/// Passes written data on, with its checksum.
struct Summed<W> {
    out: W,
    crc: Crc,
    bytes: u64,
}

impl<W> Summed<W> {
    fn new(out: W) -> Self {
        Self {
            out,
            crc: Crc::new(),
            bytes: 0,
        }
    }
}

impl<W: Write> Write for Summed<W> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let written = self.out.write(data)?;
        self.crc.update(&data[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
