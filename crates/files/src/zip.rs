//! The part of the zip format that `.npz` and PyTorch's files are written in.
//!
//! Source: PKWARE's APPNOTE.TXT 6.3.10, sections 4.3 (structure) and 4.5.3 (zip64). Entries are stored or deflated,
//! neither encrypted nor spread over several files.

mod reader;
mod writer;

pub(crate) use reader::Archive;
pub use writer::Compression;
pub(crate) use writer::Writer;

const LOCAL: u32 = 0x0403_4b50;
const CENTRAL: u32 = 0x0201_4b50;
const END: u32 = 0x0605_4b50;
const END64: u32 = 0x0606_4b50;
const LOCATOR64: u32 = 0x0706_4b50;

/// Bytes of these records, without the parts of varying length.
const LOCAL_BYTES: u64 = 30;
const CENTRAL_BYTES: u64 = 46;
const END_BYTES: u64 = 22;
const END64_BYTES: u64 = 56;
const LOCATOR64_BYTES: u64 = 20;

/// The extra field with numbers of 64 bits.
const ZIP64: u16 = 1;

const STORED: u16 = 0;
const DEFLATED: u16 = 8;

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::{Archive, Compression, Writer};
    use crate::FileError;
    use crate::source::Source;

    fn written(zip64_from: u64) -> Vec<u8> {
        let mut out = Cursor::new(Vec::new());
        let mut writer = Writer::with_zip64_from(&mut out, zip64_from);
        let zeros = vec![0; 5000];
        for (name, data, how) in [
            ("a", &b"stored"[..], Compression::Stored),
            ("folder/b", &zeros, Compression::Deflated),
            ("empty", b"", Compression::Deflated),
        ] {
            let fill = |out: &mut dyn std::io::Write| {
                out.write_all(data).map_err(FileError::io("write the test"))
            };
            writer.add(name, how, data.len() as u64, 64, fill).unwrap();
        }
        writer.finish().unwrap();
        out.into_inner()
    }

    #[test]
    fn what_is_written_is_read_with_and_without_zip64() {
        for zip64_from in [u64::from(u32::MAX), 0] {
            let file = written(zip64_from);
            let archive = Archive::read(&Source::from(file), u64::MAX).unwrap();
            assert_eq!(
                archive.names().collect::<Vec<_>>(),
                ["a", "folder/b", "empty"]
            );
            assert_eq!(&*archive.data("a").unwrap().unwrap(), b"stored");
            assert_eq!(&*archive.data("folder/b").unwrap().unwrap(), [0; 5000]);
            assert_eq!(&*archive.data("empty").unwrap().unwrap(), b"");
            assert!(archive.data("c").is_none());
        }
    }

    #[test]
    fn stored_data_is_aligned() {
        let source = Source::from(written(u64::from(u32::MAX)));
        let archive = Archive::read(&source, u64::MAX).unwrap();
        let data = archive.data("a").unwrap().unwrap();
        let offset = data.as_ptr().addr() - source.as_ptr().addr();
        assert!(offset.is_multiple_of(64), "{offset}");
    }

    /// The error of a file in which these bytes are written at a place.
    fn error(file: &[u8], at: usize, bytes: &[u8]) -> String {
        let mut file = file.to_vec();
        file[at..at + bytes.len()].copy_from_slice(bytes);
        let read = Archive::read(&Source::from(file), u64::MAX).and_then(|archive| {
            let names: Vec<String> = archive.names().map(str::to_owned).collect();
            let mut all = names.iter().map(|name| archive.data(name).unwrap());
            all.try_for_each(|data| data.map(drop))
        });
        read.unwrap_err().to_string()
    }

    #[test]
    fn damage_is_named() {
        let file = written(u64::from(u32::MAX));
        let entries: Vec<usize> = (0..file.len())
            .filter(|&at| file[at..].starts_with(b"PK\x01\x02"))
            .collect();
        let [first, second, third] = entries[..] else {
            panic!("{entries:?}");
        };
        let end = file.len() - 22;
        let damaged: [(usize, &[u8], &str); 12] = [
            (end, b"x", "no end of a zip archive"),
            (end + 4, &[1], "an archive of several files"),
            (end + 10, &[4], "an archive of several files"),
            (
                end + 8,
                &[4, 0, 4, 0],
                "4 entries were announced, but 3 are there",
            ),
            (end + 19, &[1], "is not before it"),
            (first, b"x", "no entry begins there"),
            (
                first + 10,
                &[12],
                "entry `a`: compression method 12 is not supported",
            ),
            (first + 8, &[1], "entry `a`: an encrypted entry"),
            (second + 27, &[1], "it declares 16782216 bytes"),
            (second + 24, &[0x87], "decompresses to more than 4999 bytes"),
            (second + 24, &[0x89], "decompresses to 5000 of 5001 bytes"),
            (second + 16, b"abcd", "its checksum differs"),
        ];
        for (at, bytes, expected) in damaged {
            let error = error(&file, at, bytes);
            assert!(error.contains(expected), "{expected}: {error}");
        }
        // The third entry's header is where the first one's is.
        let error = error(&file, third + 42, &[0; 4]);
        assert!(error.contains("another name than the directory"), "{error}");
    }
}
