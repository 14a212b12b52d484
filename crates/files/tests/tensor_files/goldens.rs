//! Files that NumPy, PyTorch and safetensors wrote.

use rustorch_files::{Tensors, load, npy, npz, pt, safetensors};
use rustorch_ir::DType;
use rustorch_tensor::Tensor;

use crate::{bytes, check, error, golden, of, on_cpu, values};

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

/// Checks the tensors of the script's `views`, in a file of either format.
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
    // Tensors that share a storage in the file share memory.
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
fn a_checkpoint_of_pytorchs_is_read_by_its_keys() {
    on_cpu(|_| {
        let checkpoint = pt::load_value(golden("checkpoint.pt")).unwrap();
        assert_eq!(checkpoint["epoch"].as_int().unwrap(), 3);
        assert_eq!(checkpoint["epoch"].as_float().unwrap(), 3.0);
        assert_eq!(checkpoint["loss"].as_float().unwrap(), 0.125);
        assert_eq!(checkpoint["name"].as_text().unwrap(), "net ä");
        assert!(!checkpoint["is_best"].as_bool().unwrap());
        assert!(checkpoint.get("scheduler").unwrap().is_none());
        let history = checkpoint["history"].as_list().unwrap();
        assert_eq!(history.len(), 2);
        assert_eq!(history[1][1].as_float().unwrap(), 0.25);
        assert_eq!(checkpoint["history"][-2][0].as_int().unwrap(), 1);

        // Other objects are read as the nearest type that there is.
        assert_eq!(checkpoint["dtype"].as_text().unwrap(), "torch.bfloat16");
        assert_eq!(checkpoint["devices"][0].as_text().unwrap(), "cpu");
        assert_eq!(checkpoint["devices"][1].as_text().unwrap(), "cuda:1");
        assert_eq!(checkpoint["tags"][0].as_text().unwrap(), "best");
        assert_eq!(checkpoint["counts"]["a"].as_int().unwrap(), 2);
        assert_eq!(checkpoint["size"].as_list().unwrap().len(), 2);
        assert_eq!(checkpoint["parameter"].as_tensor().unwrap().shape(), [2]);

        let model = checkpoint["model"].tensors().unwrap();
        let names: Vec<&str> = model.names().collect();
        assert_eq!(names, ["module.0.weight", "module.0.bias"]);
        let optimizer = &checkpoint["optimizer"];
        let state = &optimizer["state"][0];
        assert_eq!(state["step"].as_tensor().unwrap().item().unwrap(), 1.0);
        let moments = state["exp_avg"].as_tensor().unwrap();
        assert_eq!(moments.shape(), [1, 2]);
        let group = &optimizer["param_groups"][0];
        assert_eq!(group["lr"].as_float().unwrap(), 0.25);
        assert_eq!(group["params"].as_list().unwrap().len(), 2);
        let options = group.as_dict().unwrap();
        assert!(
            options
                .iter()
                .any(|(key, _)| key.as_text().unwrap() == "betas")
        );

        // All tensors at once, by the keys that lead to them.
        let all = load(golden("checkpoint.pt")).unwrap();
        assert_eq!(all.get("model.module.0.bias").unwrap().shape(), [1]);
        assert_eq!(all.under("model.module.").len(), 2);

        let mistakes = [
            (
                error(checkpoint.get("modle")),
                "there is no `modle` in a dictionary, which has `model`, `optimizer`, `epoch`, `loss`, `name`, `is_best`, `scheduler`, `history`, 6 more",
            ),
            (
                error(checkpoint["history"].get(2)),
                "there is no 2 in a list, which has 2 values",
            ),
            (
                error(checkpoint["history"].get(-3)),
                "there is no -3 in a list, which has 2 values",
            ),
            (
                error(checkpoint["epoch"].get("x")),
                "there is no `x` in an integer, which has no keys",
            ),
            (
                error(checkpoint["modle"].as_int()),
                "expected an integer, got None, or no such key (get lists the keys)",
            ),
            (
                error(checkpoint["epoch"].tensors()),
                "expected tensors by name, got an integer",
            ),
            (
                error(checkpoint["loss"].as_int()),
                "expected an integer, got a number",
            ),
            (
                error(checkpoint["epoch"].as_text()),
                "expected a text, got an integer",
            ),
            (
                error(checkpoint["model"].as_tensor()),
                "expected a tensor, got a dictionary",
            ),
            (
                error(checkpoint["name"].as_float()),
                "expected a number, got a text",
            ),
            (
                error(checkpoint["epoch"].as_bool()),
                "expected a truth value, got an integer",
            ),
            (
                error(checkpoint["model"].as_list()),
                "expected a list or a tuple, got a dictionary",
            ),
            (
                error(checkpoint["history"].as_dict()),
                "expected a dictionary, got a list",
            ),
            (
                error(pt::Value::Int(1 << 70).as_int()),
                "expected an integer of 64 bits, got 1180591620717411303424",
            ),
        ];
        for (found, expected) in mistakes {
            assert_eq!(found, expected);
        }
    });
}

#[test]
fn names_are_changed_and_stay_apart() {
    let tensor = Tensor::zeros([1], DType::F32).unwrap();
    let mut state: Tensors = ["module.a", "module.b", "c"]
        .map(|name| (name, tensor.clone()))
        .into_iter()
        .collect();
    state.metadata.insert("format".into(), "pt".into());
    let names = |state: &Tensors| state.names().map(str::to_owned).collect::<Vec<_>>();
    let stripped = state.strip_prefix("module.").unwrap();
    assert_eq!(names(&stripped), ["a", "b", "c"]);
    assert_eq!(stripped.metadata, state.metadata);
    assert_eq!(
        names(&stripped.add_prefix("net.")),
        ["net.a", "net.b", "net.c"]
    );
    assert_eq!(names(&state.under("module.")), ["a", "b"]);
    let some = state.rename(|name| (name != "c").then(|| name.replace("module", "m")));
    assert_eq!(names(&some.unwrap()), ["m.a", "m.b"]);
    assert_eq!(
        error(state.rename(|name| Some(name.replace("module.a", "c")))),
        "the tensors `module.a` and `c` both get the name `c`; give each its own"
    );
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
