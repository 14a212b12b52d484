//! Files that are wrong on purpose: each is one error that says what, where, and what to do.

use std::io::{Cursor, Write};

use flate2::write::DeflateEncoder;
use rustorch_files::npz::Compression;
use rustorch_files::{FileResult, Source, Tensors, load, npy, npz, pt, safetensors};
use rustorch_ir::DType;
use rustorch_tensor::Tensor;
use rustorch_testing::memory::within;

use crate::{error, golden, on_cpu};

fn with_header(header: &str, data: &[u8]) -> Source {
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.bytes());
    file.extend(data);
    file.into()
}

#[test]
fn wrong_safetensors_files_are_refused() {
    let entry = |name: &str, dtype: &str, shape: &str, begin: u64, end: u64| {
        format!(r#""{name}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{begin},{end}]}}"#)
    };
    let f32 = |name: &str, begin: u64| entry(name, "F32", "[1]", begin, begin + 4);
    let cases = [
        (
            format!("{{{},{}}}", f32("a", 0), f32("a", 4)),
            "`a` is there twice",
        ),
        (
            format!("{{{},{}}}", f32("a", 0), f32("b", 0)),
            "tensor `b`: its elements are declared from byte 0 to 4",
        ),
        (
            format!("{{{},{}}}", f32("a", 0), f32("b", 2)),
            "should begin at 4",
        ),
        (format!("{{{}}}", f32("a", 4)), "should begin at 0"),
        (
            format!("{{{}}}", f32("a", 0)),
            "only 4 of 8 bytes belong to tensors",
        ),
        (
            format!("{{{}}}", entry("a", "F32", "[3]", 0, 12)),
            "from byte 0 to 12 of 8",
        ),
        (
            format!("{{{}}}", entry("a", "F32", "[3]", 0, 8)),
            "from_storage: expected 12 bytes",
        ),
        (
            format!("{{{}}}", entry("a", "F4", "[16]", 0, 8)),
            "dtype `F4` is not supported",
        ),
        (
            format!("{{{}}}", entry("a", "F32", "[4294967296,4294967296]", 0, 8)),
            "tensor `a`",
        ),
        (
            format!("{{{}}}", entry("a", "F32", "[-2]", 0, 8)),
            "invalid value",
        ),
        (
            format!("{{{}}}", entry("a", "F32", "[2]", 8, 0)),
            "from byte 8 to 0",
        ),
        (
            r#"{"__metadata__":{"k":1}}"#.to_owned(),
            "expected a string",
        ),
        (
            r#"{"__metadata__":{"k":"a","k":"b"}}"#.to_owned(),
            "`k` is there twice",
        ),
        ("[".repeat(1000), "the header: "),
        ("{".to_owned(), "the header: EOF"),
    ];
    on_cpu(|_| {
        for (header, expected) in cases {
            let text = error(safetensors::read(&with_header(&header, &[0; 8])));
            assert!(text.contains(expected), "{text}");
        }
        let size = |n: u64| Source::from(n.to_le_bytes().to_vec());
        let text = error(safetensors::read(&size(9)));
        assert!(
            text.contains("the header, at byte 8, needs 9 bytes but 0 are left"),
            "{text}"
        );
        assert!(error(safetensors::read(&size(u64::MAX))).contains("at most 100000000"));
        assert!(error(safetensors::read(&vec![1; 7].into())).contains("needs 8 bytes but 7"));
    });
}

fn array(header: &str, data: &[u8]) -> Source {
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend((header.len() as u16).to_le_bytes());
    file.extend(header.bytes());
    file.extend(data);
    file.into()
}

#[test]
fn wrong_arrays_are_refused() {
    let plain = |descr: &str, shape: &str| {
        format!("{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}")
    };
    let cases = [
        (plain("'<f4'", "(2,)"), "needs 8 bytes but 4 are left"),
        (plain("'<f4'", "()"), ""),
        (plain("'<f2'", "(1,)"), "2 bytes are behind the array"),
        (
            plain("'<f4'", "(18446744073709551615, 2)"),
            "is too large for memory",
        ),
        (plain("'<f4'", "(18446744073709551616,)"), "expected a size"),
        (plain("'<f4'", "(-1,)"), "expected a size"),
        (plain("'<f4'", "[1]"), "no proper `shape`"),
        (plain("'|O'", "(1,)"), "objects of Python are code"),
        (plain("'<V2'", "(2,)"), "bfloat16 and 8-bit floats"),
        (plain("'<U1'", "(1,)"), "dtype `<U1` is not supported"),
        (plain("[('a', '<f4')]", "(1,)"), "an array of records"),
        (plain("[", "(1,)"), "a list that ends"),
        (plain("True", "(1,)"), "`descr` is not text"),
        ("{'descr': '<f4'}".to_owned(), "no proper `fortran_order`"),
        ("{'shape': (), 'shape': ()}".to_owned(), "`shape` twice"),
        ("{'a': ()}".to_owned(), "no proper `a`"),
        ("__import__('os')".to_owned(), "expected `{` at character 1"),
        ("{'descr': '<f4".to_owned(), "a text that ends"),
        ("{} x".to_owned(), "nothing behind the dictionary"),
    ];
    on_cpu(|_| {
        for (header, expected) in cases {
            let read = npy::read(&array(&header, &[0; 4]));
            if expected.is_empty() {
                assert_eq!(read.unwrap().shape(), [0usize; 0]);
                continue;
            }
            let text = error(read);
            assert!(text.contains(expected), "{text}");
        }
        let text = error(npy::load(golden("records.npy")));
        assert!(
            text.contains("records.npy: array `tensor`: an array of records"),
            "{text}"
        );
        assert!(error(npy::load(golden("objects.npy"))).contains("are code"));
        let version = b"\x93NUMPY\x04\x00\x00\x00".to_vec();
        assert!(error(npy::read(&version.into())).contains("format version 4.0"));
    });
}

#[test]
fn code_in_pickles_is_an_error_that_names_it() {
    on_cpu(|_| {
        let text = error(pt::load(golden("hostile.pt")));
        let named = "hostile.pt: the pickle: the Python object `posix.system` is not supported; save tensors";
        assert!(text.contains(named), "{text}");
        let text = error(load(golden("module.pt")));
        assert!(text.contains("`torch.nn.modules.linear.Linear`"), "{text}");
    });
}

/// A file of the format before zip archives, with this pickle. The pickle may name its storage of four zeros.
fn with_pickle(pickle: &[u8]) -> Source {
    let mut file = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.".to_vec();
    file.extend(b"\x80\x02M\xe9\x03.\x80\x02}.");
    file.extend(pickle);
    match pickle.windows(7).any(|window| window == b"storage") {
        true => {
            file.extend(b"\x80\x02](X\x01\x00\x00\x000e.");
            file.extend(4u64.to_le_bytes());
            file.extend([0; 16]);
        }
        false => file.extend(b"\x80\x02]."),
    }
    file.into()
}

/// A tensor of the storage `0` of four floats, by what comes behind the storage.
fn tensor(arguments: &[u8]) -> Vec<u8> {
    let mut pickle = b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n((".to_vec();
    pickle.extend(b"X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000NK\x04NtQ");
    pickle.extend(arguments);
    pickle.extend(b"\x89NtR.");
    pickle
}

#[test]
fn wrong_pickles_are_refused() {
    let mut deep = b"\x80\x02".to_vec();
    deep.extend([b']'; 1000]);
    deep.extend([b'a'; 999]);
    deep.push(b'.');
    // Ten lists, each ten times in the next: 10^10 visits.
    let mut often = b"\x80\x02]".to_vec();
    for n in 0..10u8 {
        often.extend([b'q', n, b'0', b']', b'(']);
        (0..10).for_each(|_| often.extend([b'h', n]));
        often.push(b'e');
    }
    often.push(b'.');
    // A list of 500 pairs that 2000 dictionaries are made of.
    let mut copied = b"\x80\x02ccollections\nOrderedDict\nq\x010](".to_vec();
    (0..500).for_each(|_| copied.extend(b"K\x01K\x01\x86"));
    copied.extend(b"eq\x000");
    (0..2000).for_each(|_| copied.extend(b"h\x01h\x00\x85R0"));
    copied.extend(b"N.");
    let expanded = b"K\x00(J\x00\x00\x00\x40J\x00\x00\x00\x40t(K\x00K\x00t";
    let cases: [(&[u8], &str); 21] = [
        (&tensor(b"K\x00K\x02\x85K\x01\x85"), ""),
        (
            &tensor(b"K\x03K\x02\x85K\x01\x85"),
            "a layout inside the memory",
        ),
        (
            &tensor(b"K\x00K\x05\x85K\x01\x85"),
            "a layout inside the memory",
        ),
        (
            &tensor(b"K\x00K\x02\x85K\x09\x85"),
            "a layout inside the memory",
        ),
        (
            &tensor(b"J\xff\xff\xff\xffK\x02\x85K\x01\x85"),
            "-1 is not a valid size",
        ),
        (&tensor(b"K\x00K\x02\x85)"), "one stride for each size"),
        (&tensor(expanded), "shows more than the 1073741824 bytes"),
        (
            b"\x80\x02cos\nsystem\nX\x01\x00\x00\x00a\x85R.",
            "`os.system`",
        ),
        (b"\x80\x04\x8c\x02os\x8c\x06system\x93.", "`os.system`"),
        (b"\x80\x02ctorch\nload\n.", "`torch.load`"),
        (b"\x80\x02ctorch\nSize\n.", "Size alone"),
        (b"\x80\x02ios\nsystem\n.", "opcode 0x69"),
        (b"\x80\x02]q\x00h\x00a.", "one contains itself"),
        (&deep, "too deep"),
        (&often, "too often"),
        (&copied, "the same arguments are used too often"),
        (b"\x80\x02h\x07.", "no object 7 in the memo"),
        (b"\x80\x02t.", "a mark is missing"),
        (b"\x80\x02R.", "an object is missing"),
        (b"\x80\x02}K\x01a.", "no list is there"),
        (b"\x80\x02X\xff\xff\xff\x7fabc", "needs 2147483647 bytes"),
    ];
    on_cpu(|_| {
        for (pickle, expected) in cases {
            let read = pt::read(&with_pickle(pickle));
            if expected.is_empty() {
                let read = read.unwrap();
                assert_eq!(read.only().unwrap().to_vec::<f32>().unwrap(), [0.0, 0.0]);
                continue;
            }
            let text = error(read);
            assert!(text.contains(expected), "{expected}: {text}");
        }
    });
}

/// An archive of deflated zeros, with its directory's entry.
fn packed() -> (Vec<u8>, usize) {
    let zeros = Tensors::from(Tensor::zeros([1 << 16], DType::F32).unwrap());
    let mut out = Cursor::new(Vec::new());
    npz::write(&mut out, &zeros, Compression::Deflated).unwrap();
    let file = out.into_inner();
    let entry = file.windows(4).position(|w| w == b"PK\x01\x02").unwrap();
    (file, entry)
}

#[test]
fn archives_that_claim_too_much_are_refused() {
    on_cpu(|_| {
        let (file, entry) = packed();
        let with_size = |size: u32| {
            let mut file = file.clone();
            file[entry + 24..entry + 28].copy_from_slice(&size.to_le_bytes());
            Source::from(file)
        };
        let whole = (1 << 18) + 128;
        assert!(npz::read(&with_size(whole)).is_ok());
        let text = error(npz::read(&with_size(u32::MAX - 1)));
        assert!(
            text.contains("it declares 4294967294 bytes, which its"),
            "{text}"
        );
        let text = error(npz::read(&with_size(whole - 1)));
        assert!(
            text.contains("needs 262144 bytes but 262143 are left"),
            "{text}"
        );
        let text = error(npz::read(&with_size(whole + 1)));
        assert!(text.contains("1 bytes are behind the array"), "{text}");
        let text = error(npz::read_within(&file.clone().into(), 1000));
        assert!(
            text.contains("this needs 262272 bytes of memory, but the limit is 1000"),
            "{text}"
        );
    });
}

/// An archive of deflated entries.
fn deflated(entries: &[(&str, &[u8])]) -> Source {
    let (mut file, mut directory) = (Vec::new(), Vec::new());
    for (name, data) in entries {
        let mut encoder = DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(data).unwrap();
        let packed = encoder.finish().unwrap();
        let mut crc = flate2::Crc::new();
        crc.update(data);
        // Version, flags, method, time, checksum, sizes, length of the name; no extra field.
        let mut fields = vec![20, 0, 0, 0, 8, 0, 0, 0, 0, 0];
        for number in [crc.sum(), packed.len() as u32, data.len() as u32] {
            fields.extend(number.to_le_bytes());
        }
        fields.extend([name.len() as u8, 0, 0, 0]);
        directory.extend(b"PK\x01\x02\x14\x00");
        directory.extend(&fields);
        directory.extend([0; 10]);
        directory.extend((file.len() as u32).to_le_bytes());
        directory.extend(name.bytes());
        file.extend(b"PK\x03\x04");
        file.extend(&fields);
        file.extend(name.bytes());
        file.extend(&packed);
    }
    let (begin, count) = (file.len() as u32, entries.len() as u8);
    file.extend(&directory);
    file.extend(b"PK\x05\x06\x00\x00\x00\x00");
    file.extend([count, 0, count, 0]);
    file.extend((directory.len() as u32).to_le_bytes());
    file.extend(begin.to_le_bytes());
    file.extend([0, 0]);
    file.into()
}

/// The error of a file of `bytes`, which takes no more memory than what follows from that.
fn small<T>(bytes: usize, read: impl FnOnce() -> FileResult<T>) -> String {
    const SLACK: usize = 1 << 20;
    error(within(128 * bytes + SLACK, read))
}

#[test]
fn what_a_small_file_has_often_takes_no_memory() {
    const TEXT: usize = 1 << 16;
    let mut text = b"X".to_vec();
    text.extend((TEXT as u32).to_le_bytes());
    text.extend([b'a'; TEXT]);
    text.extend(b"q\x00");
    let with = |parts: &[&[u8]]| [&b"\x80\x02"[..], &text[..], &parts.concat(), b"."].concat();
    let shown = tensor(b"K\x00K\x02\x85K\x01\x85");
    let shown = [&shown[2..shown.len() - 1], b"q\x01"].concat();
    let cases = [
        // A long text in a list, as a key, and in the names of tensors.
        with(&[b"](", &b"h\x00".repeat(TEXT), b"e"]),
        with(&[b"}(", &b"h\x00N".repeat(TEXT), b"u"]),
        with(&[b"}h\x00](", &shown, &b"h\x01".repeat(TEXT), b"es"]),
        with(&[
            b"}",
            &b"h\x00}".repeat(90),
            b"h\x00",
            &shown,
            &b"s".repeat(91),
        ]),
    ];
    on_cpu(|_| {
        for pickle in cases {
            let file = with_pickle(&pickle);
            let text = small(file.len(), || pt::read(&file));
            assert!(text.contains("occur too often"), "{text}");
        }
        // Nobody asks for the name of what is not a tensor.
        let file = with_pickle(&with(&[b"}h\x00](", &b"N".repeat(TEXT), b"es"]));
        assert!(
            within(128 * file.len(), || pt::read(&file))
                .unwrap()
                .is_empty()
        );
    });
}

#[test]
fn what_is_compressed_is_looked_at_before_it_takes_memory() {
    let zeros = vec![0; 16 << 20];
    let storage = tensor(b"K\x00K\x02\x85K\x01\x85");
    let lists = [&b"\x80\x02"[..], &b"]".repeat(8 << 20)[..], b"."].concat();
    let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }";
    let array = array(header, &zeros);
    on_cpu(|_| {
        let pickles = [
            (
                deflated(&[("a/data.pkl", &storage[..]), ("a/data/0", &zeros[..])]),
                "the limit is 16",
            ),
            (
                deflated(&[("a/data.pkl", &lists[..])]),
                "the limit is 4194304",
            ),
        ];
        for (file, expected) in pickles {
            let text = small(file.len() / 64, || pt::read(&file));
            assert!(text.contains(expected), "{text}");
        }
        let arrays = [
            (deflated(&[("a.npy", &zeros[..])]), "it begins with [00, 00"),
            (
                deflated(&[("a.npy", &array[..])]),
                "bytes are behind the array",
            ),
        ];
        for (file, expected) in arrays {
            let text = small(file.len() / 64, || npz::read(&file));
            assert!(text.contains(expected), "{text}");
        }
    });
}

#[test]
fn long_lists_and_texts_of_a_header_become_short_errors() {
    const MANY: usize = 100_000;
    let sizes = "1,".repeat(MANY);
    let dict = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({sizes}), }}");
    let mut version2 = b"\x93NUMPY\x02\x00".to_vec();
    version2.extend((dict.len() as u32).to_le_bytes());
    version2.extend(dict.bytes());
    version2.extend([0; 4]);
    let shape = |shape: &str| {
        let entry = format!(r#"{{"a":{{"dtype":"F32","shape":{shape},"data_offsets":[0,4]}}}}"#);
        with_header(&entry, &[0; 4])
    };
    let sizes = sizes.trim_end_matches(',');
    let text = format!(r#"["\u001b[2J\n{}"]"#, "a".repeat(MANY));
    let tensors = [&b"("[..], &b"K\x01".repeat(MANY)[..], b"t"].concat();
    let pickle = tensor(&[&b"K\x00"[..], &tensors[..], &tensors].concat());
    on_cpu(|_| {
        let cases = [
            (
                error(npy::read(&version2.into())),
                "a shape of 100000 dimensions",
            ),
            (
                error(safetensors::read(&shape(&format!("[{sizes}]")))),
                "a shape of 100000 dimensions",
            ),
            (
                error(safetensors::read(&shape(&text))),
                r#"invalid type: string "\u{1b}[2J\naaa"#,
            ),
            (
                error(pt::read(&with_pickle(&pickle))),
                "a shape of 100000 dimensions",
            ),
        ];
        for (text, expected) in cases {
            assert!(text.contains(expected) && text.len() < 600, "{text}");
        }
    });
}

#[test]
fn entries_that_share_bytes_are_refused() {
    on_cpu(|_| {
        let (file, entry) = packed();
        // The directory once more, with another name for the same bytes.
        let end = file.len() - 22;
        let directory = file[entry..end].to_vec();
        let mut twice = file[..end].to_vec();
        twice.extend(&directory);
        let mut tail = file[end..].to_vec();
        for at in [8, 10] {
            tail[at] = 2;
        }
        tail[12..16].copy_from_slice(&(2 * directory.len() as u32).to_le_bytes());
        twice.extend(&tail);
        assert!(error(npz::read(&twice.clone().into())).contains("`tensor.npy` is there twice"));
        let second = end + 46;
        twice[second] = b'x';
        let text = error(npz::read(&twice.into()));
        assert!(text.contains("another name than the directory"), "{text}");
    });
}

#[test]
fn what_is_no_file_of_tensors_is_told() {
    on_cpu(|_| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "hello").unwrap();
        assert!(error(load(&path)).contains("begins with [68, 65, 6c, 6c, 6f]"));
        std::fs::write(&path, "").unwrap();
        assert!(error(load(&path)).contains("the file is empty"));
        assert!(error(load(folder.path())).contains("not an ordinary file"));
        assert!(error(load(folder.path().join("none"))).contains("check the path"));
        let text = error(load(golden("all.npz")).unwrap().get("f23").map(drop));
        assert!(
            text.contains("there is no tensor `f23`; there are `f64`, `f64.empty`"),
            "{text}"
        );
    });
}
