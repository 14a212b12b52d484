//! Files written here are read here, and by the package `safetensors`. `scripts/file-goldens.py check` reads them
//! with NumPy and PyTorch.

use std::fs;
use std::io::Cursor;
use std::path::Path;

use ::safetensors::SafeTensors;
use rustorch_files::npz::Compression;
use rustorch_files::pt::Value;
use rustorch_files::{
    FileError, Source, Tensors, gguf, load, npy, npz, pt, raw, safetensors, save,
};
use rustorch_ir::DType;
use rustorch_tensor::Tensor;

use crate::{blocks, bytes, check, error, golden, on_cpu, tensors};

fn of_safetensors() -> Vec<DType> {
    let others = |dtype: &DType| *dtype != DType::Complex128;
    DType::SCALARS.into_iter().filter(others).collect()
}

fn of_numpy() -> Vec<DType> {
    let is_numpys = |dtype: &DType| *dtype != DType::BF16 && !dtype.is_float8();
    DType::SCALARS.into_iter().filter(is_numpys).collect()
}

/// Leaves its files where the script is told to check them.
#[test]
fn what_is_written_is_read() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tensor_files");
    fs::create_dir_all(&folder).unwrap();
    let at = |name: &str| folder.join(name);
    on_cpu(|_| {
        let mut all = tensors(of_safetensors());
        all.metadata.insert("format".into(), "pt".into());
        save(at("all.safetensors"), &all).unwrap();
        let read = load(at("all.safetensors")).unwrap();
        check(&read, of_safetensors());
        assert_eq!(read.metadata, all.metadata);
        let parts = safetensors::parts(at("all.safetensors")).unwrap();
        assert_eq!(parts.len(), read.len());
        for (name, tensor) in read.iter() {
            let part = &parts[name];
            assert_eq!(
                (part.dtype, &part.shape[..]),
                (tensor.dtype(), tensor.shape())
            );
            assert_eq!(part.data[..], bytes(tensor), "{name}");
        }

        let arrays = tensors(of_numpy());
        save(at("all.npz"), &arrays).unwrap();
        check(&load(at("all.npz")).unwrap(), of_numpy());
        npz::save(at("packed.npz"), &arrays, Compression::Deflated).unwrap();
        check(&load(at("packed.npz")).unwrap(), of_numpy());
        npy::save(at("f32.npy"), arrays.get("f32").unwrap()).unwrap();
        let alone = load(at("f32.npy")).unwrap();
        assert_eq!(
            bytes(alone.only().unwrap()),
            bytes(arrays.get("f32").unwrap())
        );

        save(at("all.pt"), &tensors(DType::SCALARS)).unwrap();
        check(&load(at("all.pt")).unwrap(), DType::SCALARS);
        let shared = Tensor::from_slice(&[1.0f32, 2.0], [2]).unwrap();
        let tied: Tensors = ["a", "b"]
            .map(|name| (name, shared.clone()))
            .into_iter()
            .collect();
        save(at("tied.pt"), &tied).unwrap();
        let tied = load(at("tied.pt")).unwrap();
        let [a, b] = ["a", "b"].map(|name| tied.get(name).unwrap().storage_in_memory().unwrap());
        assert!(a.same_as(&b));

        let value = checkpoint();
        pt::save_value(at("checkpoint.pt"), &value).unwrap();
        let read = pt::load_value(at("checkpoint.pt")).unwrap();
        assert_eq!(format!("{read:?}"), format!("{value:?}"));
        let [a, b] = [&read["model"]["fc.weight"], &read["again"]];
        let [a, b] = [a, b].map(|value| value.as_tensor().unwrap().storage_in_memory().unwrap());
        assert!(a.same_as(&b));
    });
}

/// A checkpoint, as a training program saves it.
fn checkpoint() -> Value {
    let weight = Tensor::from_slice(&[1.0f32, 2.0], [1, 2]).unwrap();
    let pair = |epoch: i32, loss: f64| Value::Tuple(vec![epoch.into(), loss.into()]);
    let large = [1 << 40, -(1 << 40), 1 << 70, -(1 << 70), -1, 255, 256];
    let Value::Dict(mut entries) = Value::dict::<_, Value>([
        ("model", Value::dict([("fc.weight", weight.clone())])),
        ("again", weight.into()),
        ("epoch", 3.into()),
        ("loss", 0.125.into()),
        ("name", "net ä".into()),
        ("is_best", false.into()),
        ("scheduler", None::<f64>.into()),
        ("history", vec![pair(1, 0.5), pair(2, 0.25)].into()),
        ("large", large.map(Value::Int).to_vec().into()),
    ]) else {
        unreachable!("a dictionary");
    };
    let key = Value::Tuple(vec![1.into(), "a".into()]);
    let inner = Value::Dict(vec![(key, Value::List(Vec::new()))]);
    entries.push((5.into(), inner));
    Value::Dict(entries)
}

#[test]
fn values_that_python_cannot_have_are_refused() {
    on_cpu(|_| {
        let write = |value: &Value| error(pt::write_value(&mut Cursor::new(Vec::new()), value));
        let tensor = Tensor::from_slice(&[1.0f32], [1]).unwrap();
        let with_key = |key: Value| Value::dict([("inner", Value::Dict(vec![(key, 1.into())]))]);
        let advice = "cannot be a key; use a text, a number or a tuple of such";
        for (key, kind) in [
            (Value::List(Vec::new()), "a list"),
            (Value::dict::<&str, Value>([]), "a dictionary"),
            (tensor.into(), "a tensor"),
            (Value::Tuple(vec![Value::List(Vec::new())]), "a tuple"),
        ] {
            let expected = format!("the value at `inner`: {kind} {advice}");
            assert_eq!(write(&with_key(key)), expected);
        }
        let deep = |depth: usize| (0..depth).fold(Value::None, |value, _| Value::List(vec![value]));
        assert!(write(&deep(100)).contains("more than 100 deep; save a flatter value"));
        let mut file = Vec::new();
        pt::write_value(&mut Cursor::new(&mut file), &deep(99)).unwrap();
        let read = pt::read_value(&Source::from(file)).unwrap();
        assert_eq!(format!("{read:?}"), format!("{:?}", deep(99)));
        let block = Value::dict([("layer", Value::dict([("weight", blocks().0)]))]);
        let refused = write(&block);
        assert!(
            refused.starts_with("tensor `layer.weight`: PyTorch has no"),
            "{refused}"
        );
    });
}

#[test]
fn files_are_those_of_safetensors_and_numpy_byte_for_byte() {
    on_cpu(|_| {
        let mut all = tensors(of_safetensors());
        all.metadata.insert("format".into(), "pt".into());
        let mut file = Vec::new();
        safetensors::write(&mut file, &all).unwrap();
        assert!(file == fs::read(golden("all.safetensors")).unwrap());
        let arrays = fs::read(golden("all.npz")).unwrap();
        for (name, tensor) in tensors(of_numpy()).iter() {
            let mut file = Vec::new();
            npy::write(&mut file, tensor).unwrap();
            assert!(
                arrays.windows(file.len()).any(|window| window == file),
                "{name}"
            );
        }
    });
}

#[test]
fn the_package_safetensors_reads_what_is_written() {
    on_cpu(|_| {
        let all = tensors(of_safetensors());
        let mut file = Vec::new();
        safetensors::write(&mut file, &all).unwrap();
        let theirs = SafeTensors::deserialize(&file).unwrap();
        assert_eq!(theirs.len(), all.len());
        for (name, tensor) in all.iter() {
            let view = theirs.tensor(name).unwrap();
            assert_eq!(
                (view.shape(), view.data()),
                (tensor.shape(), &bytes(tensor)[..])
            );
        }
    });
}

#[test]
fn views_and_what_is_not_computed_yet_are_written() {
    on_cpu(|_| {
        let matrix = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], [2, 3]).unwrap();
        let views: Tensors = [
            ("transposed", matrix.t().unwrap()),
            ("part", matrix.narrow(1, 1, 2).unwrap()),
            (
                "expanded",
                matrix.narrow(0, 0, 1).unwrap().expand([2, 3]).unwrap(),
            ),
            ("computed", matrix.add(1.0).unwrap()),
        ]
        .into_iter()
        .collect();
        let folder = tempfile::tempdir().unwrap();
        for name in ["a.safetensors", "a.npz", "a.pt", "a.gguf"] {
            let path = folder.path().join(name);
            save(&path, &views).unwrap();
            let read = load(&path).unwrap();
            for (name, view) in views.iter() {
                let read = read.get(name).unwrap();
                assert_eq!(read.shape(), view.shape());
                assert_eq!(bytes(read), bytes(view), "{name}");
            }
        }
        assert_eq!(
            views.get("computed").unwrap().to_vec::<f32>().unwrap(),
            [2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
        );
    });
}

#[test]
fn gguf_files_keep_blocks_and_texts() {
    on_cpu(|_| {
        let (blocks, numbers) = blocks();
        let plain = Tensor::from_slice(&numbers, [2, 32]).unwrap();
        let mut model: Tensors = [
            ("plain", plain.clone()),
            ("half", plain.to_dtype(DType::BF16).unwrap()),
            ("blocks", blocks),
            ("index", Tensor::arange_with(0, 4, 1, DType::I32).unwrap()),
        ]
        .into_iter()
        .collect();
        model.metadata.insert("general.name".into(), "test".into());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.gguf");
        save(&path, &model).unwrap();
        let read = load(&path).unwrap();
        assert_eq!(read.metadata, model.metadata);
        for (name, tensor) in model.iter() {
            let read = read.get(name).unwrap();
            assert_eq!(
                (read.dtype(), read.shape()),
                (tensor.dtype(), tensor.shape())
            );
            assert_eq!(bytes(read), bytes(tensor), "{name}");
        }
        let read = gguf::load_dequantised(&path, DType::F32).unwrap();
        let blocks = read.get("blocks").unwrap().to_vec::<f32>().unwrap();
        assert!(
            blocks
                .iter()
                .zip(&numbers)
                .all(|(a, b)| (a - b).abs() < 0.05)
        );
        assert_eq!(read.get("half").unwrap().dtype(), DType::BF16);
    });
}

#[test]
fn raw_elements_have_offset_and_strides() {
    on_cpu(|_| {
        let file: Vec<u8> = (0..40).collect();
        let layout = raw::Layout {
            strides: Some(vec![1, 4]),
            offset: 3,
            ..raw::Layout::new(DType::U8, [2, 3])
        };
        let read = raw::read(&file.clone().into(), &layout).unwrap();
        assert_eq!(read.to_vec::<u8>().unwrap(), [3, 7, 11, 4, 8, 12]);
        // Numbers that are not aligned.
        let layout = raw::Layout {
            offset: 3,
            ..raw::Layout::new(DType::F32, [2])
        };
        let read = raw::read(&file.clone().into(), &layout).unwrap();
        assert_eq!(bytes(&read), file[3..11]);
        let text = error(raw::read(
            &file.into(),
            &raw::Layout {
                strides: Some(vec![9, 1]),
                ..raw::Layout::new(DType::U64, [5, 5])
            },
        ));
        assert!(text.contains("needs 328 bytes but 40 are left"), "{text}");
    });
}

#[test]
fn what_a_format_does_not_have_is_refused() {
    on_cpu(|_| {
        let of = |dtype| Tensors::from(Tensor::zeros([2], dtype).unwrap());
        let out = &mut Cursor::new(Vec::new());
        let no = [
            (
                safetensors::write(out, &of(DType::Complex128)),
                "safetensors has no complex128",
            ),
            (
                npz::write(out, &of(DType::BF16), Compression::Stored),
                "NumPy has no bf16",
            ),
            (gguf::write(out, &of(DType::Bool)), "GGUF has no bool"),
            (
                save("a.xyz", &of(DType::F32)),
                "the name does not end in one",
            ),
            (
                save("a.npy", &Tensors::new()),
                "there is no tensor `tensor`; there are none",
            ),
        ];
        for (result, expected) in no {
            let text = error(result);
            assert!(text.contains(expected), "{text}");
        }
        let text = error(pt::write(out, &blocks().0.into()));
        assert!(
            text.contains("PyTorch has no Q8_0; convert it to f32"),
            "{text}"
        );
        let mut named = Tensors::new();
        named.insert("__metadata__", Tensor::zeros([1], DType::F32).unwrap());
        assert!(error(safetensors::write(out, &named)).contains("choose another name"));
    });
}

#[test]
fn a_file_is_replaced_only_by_a_whole_one() {
    on_cpu(|_| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.safetensors");
        let one = Tensors::from(Tensor::ones([2], DType::F32).unwrap());
        save(&path, &one).unwrap();
        let mapped = load(&path).unwrap();
        let mut two = Tensors::from(Tensor::zeros([2], DType::F32).unwrap());
        save(&path, &two).unwrap();
        // Tensors that were read before keep their elements.
        assert_eq!(mapped.only().unwrap().to_vec::<f32>().unwrap(), [1.0, 1.0]);
        two.insert("wrong", Tensor::zeros([2], DType::Complex128).unwrap());
        assert!(matches!(save(&path, &two), Err(FileError::File { .. })));
        assert_eq!(
            load(&path)
                .unwrap()
                .only()
                .unwrap()
                .to_vec::<f32>()
                .unwrap(),
            [0.0, 0.0]
        );
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    });
}

#[test]
fn booleans_of_any_byte_are_normal() {
    on_cpu(|_| {
        let layout = raw::Layout::new(DType::Bool, [4]);
        let read = raw::read(&Source::from(vec![0u8, 1, 2, 255]), &layout).unwrap();
        assert_eq!(read.to_vec::<bool>().unwrap(), [false, true, true, true]);
        assert_eq!(bytes(&read), [0, 1, 1, 1]);
    });
}
