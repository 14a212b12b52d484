//! What NumPy, PyTorch and safetensors wrote.

use rustorch_files::{Tensors, load, npy, npz, pt, safetensors};
use rustorch_ir::DType;

use crate::{bytes, check, golden, of, on_cpu, values};

fn of_safetensors() -> impl Iterator<Item = DType> {
    (DType::SCALARS.into_iter()).filter(|dtype| *dtype != DType::Complex128)
}

fn of_numpy() -> impl Iterator<Item = DType> {
    let is_numpys = |dtype: &DType| *dtype != DType::BF16 && !dtype.is_float8();
    DType::SCALARS.into_iter().filter(is_numpys)
}

#[test]
fn safetensors_files_are_read() {
    on_cpu(|_| {
        let tensors = safetensors::load(golden("all.safetensors")).unwrap();
        check(&tensors, of_safetensors());
        assert_eq!(tensors.metadata["format"], "pt");
    });
}

#[test]
fn arrays_of_both_byte_orders_are_read_stored_and_compressed() {
    on_cpu(|_| {
        for name in ["all.npz", "big.npz"] {
            check(&npz::load(golden(name)).unwrap(), of_numpy());
        }
        let packed = npz::load(golden("packed.npz")).unwrap();
        let zeros = packed.get("zeros").unwrap();
        assert_eq!(bytes(zeros), [0; 80_000]);
        let others = packed.into_iter().filter(|(name, _)| name != "zeros");
        check(&others.collect::<Tensors>(), of_numpy());
    });
}

#[test]
fn archives_with_numbers_of_64_bits_are_read() {
    on_cpu(|_| {
        let floats = [DType::F64, DType::F32, DType::F16];
        check(&npz::load(golden("zip64.npz")).unwrap(), floats);
    });
}

#[test]
fn all_versions_of_npy_are_read_and_fortrans_order_is_strides() {
    on_cpu(|_| {
        let expected = of(DType::F32, &values(DType::F32));
        for name in [
            "version1.npy",
            "version2.npy",
            "version3.npy",
            "fortran.npy",
        ] {
            let array = npy::load(golden(name)).unwrap();
            assert_eq!(array.shape(), [2, 3], "{name}");
            let strides = if name == "fortran.npy" {
                [1, 2]
            } else {
                [3, 1]
            };
            assert_eq!(array.stride(), strides, "{name}");
            assert_eq!(bytes(&array), expected, "{name}");
        }
    });
}

#[test]
fn pytorchs_files_are_read() {
    on_cpu(|_| {
        check(&pt::load(golden("all.pt")).unwrap(), DType::SCALARS);
        let alone = pt::load(golden("alone.pt")).unwrap();
        let expected = of(DType::F32, &values(DType::F32));
        assert_eq!(bytes(alone.get(Tensors::ONLY).unwrap()), expected);
    });
}

/// What the script's `views` has, in a file of either format.
fn check_views(tensors: &Tensors) {
    let get = |name: &str| tensors.get(name).unwrap();
    let numbers = |name: &str| get(name).to_vec::<f32>().unwrap();
    assert_eq!(numbers("transposed"), [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
    assert_eq!(get("transposed").stride(), [1, 3]);
    assert_eq!(numbers("offset"), [5.0, 6.0, 7.0, 8.0]);
    assert_eq!(numbers("every_second"), [1.0, 3.0, 5.0, 7.0, 9.0]);
    assert_eq!(numbers("expanded"), [7.0; 12]);
    assert_eq!(get("expanded").stride(), [0, 0]);
    assert_eq!(numbers("parameter"), [1.0, 1.0]);
    assert_eq!(numbers("module.weight"), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    assert_eq!(numbers("module.bias"), [0.5, 0.5]);
    for (name, number) in [
        ("list.0", 1),
        ("list.1.0", 2),
        ("ordered.b", 3),
        ("ordered.4", 5),
    ] {
        assert_eq!(get(name).to_vec::<i64>().unwrap(), [number], "{name}");
    }
    // What shares a storage in the file shares memory.
    let [a, b] = ["transposed", "offset"].map(|name| get(name).storage_in_memory().unwrap());
    assert!(a.same_as(&b));
}

#[test]
fn strides_shared_storages_and_containers_are_kept() {
    on_cpu(|_| {
        let tensors = pt::load(golden("views.pt")).unwrap();
        assert_eq!(tensors.len(), 11);
        check_views(&tensors);
        check_views(&pt::load(golden("legacy.pt")).unwrap());
    });
}

#[test]
fn the_format_before_zip_archives_is_read() {
    on_cpu(|_| {
        let tensors = pt::load(golden("legacy.pt")).unwrap();
        let dtypes =
            (DType::SCALARS.into_iter()).filter(|dtype| !dtype.is_unsigned() && !dtype.is_float8());
        let those: Tensors = (tensors.into_iter())
            .filter(|(name, _)| name.split('.').next().unwrap().parse::<DType>().is_ok())
            .collect();
        check(&those, dtypes);
    });
}

#[test]
fn values_that_are_no_tensors_are_kept_where_they_are() {
    use pt::Value;
    on_cpu(|_| {
        let Value::Dict(entries) = pt::load_value(golden("views.pt")).unwrap() else {
            panic!("no dictionary");
        };
        let get = |name: &str| {
            let is_it = |(key, _): &&(Value, Value)| matches!(key, Value::Text(k) if k == name);
            &entries.iter().find(is_it).unwrap().1
        };
        let Value::List(list) = get("list") else {
            panic!("no list");
        };
        assert!(matches!(
            &list[1..],
            [
                Value::Tuple(tuple),
                Value::Text(text),
                Value::None,
                Value::Bool(true),
                Value::Float(2.5),
                Value::Int(-1),
                Value::Int(0x100_0000_0000),
                Value::Int(0x40_0000_0000_0000_0000),
            ] if text == "text" && matches!(tuple[..], [Value::Tensor(_), Value::Int(3)])
        ));
        assert!(
            matches!(get("size"), Value::Tuple(sizes) if matches!(sizes[..], [Value::Int(2), Value::Int(3)]))
        );
    });
}

#[test]
fn formats_are_told_by_what_files_begin_with() {
    on_cpu(|_| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        for name in [
            "all.safetensors",
            "all.npz",
            "all.pt",
            "legacy.pt",
            "fortran.npy",
        ] {
            std::fs::copy(golden(name), &path).unwrap();
            let [by_name, by_bytes] = [&golden(name), &path].map(|path| load(path).unwrap());
            assert_eq!(format!("{by_name:?}"), format!("{by_bytes:?}"));
            assert!(!by_name.is_empty());
        }
    });
}
