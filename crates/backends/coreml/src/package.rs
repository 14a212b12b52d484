//! `.mlpackage`: the folder that a model and its weights are in.

use std::fs;
use std::io;
use std::path::Path;

use prost::Message;
use serde_json::json;

use crate::cache::Key;
use crate::proto::model::Model;

/// Path of the weights, for values of a program.
pub const WEIGHTS: &str = "@model_path/weights/weight.bin";
/// The folder of a package in which `@model_path` is.
const FOLDER: &str = "Data/com.apple.CoreML";
/// The names under which the manifest lists the two items. Any UUIDs do; always the same make equal
/// packages equal bytes.
const ITEMS: [&str; 2] = [
    "7D1B3C52-5E0F-4C0A-9A58-0C6E2F6B1A01",
    "7D1B3C52-5E0F-4C0A-9A58-0C6E2F6B1A02",
];

/// A model and its weights, in memory.
#[derive(Clone, PartialEq, Debug)]
pub struct Package {
    /// The model.
    pub model: Model,
    /// `weight.bin`; `None` if no value is there.
    pub weights: Option<Vec<u8>>,
}

impl Package {
    /// The files of the package: path in its folder and content.
    pub fn files(&self) -> Vec<(String, Vec<u8>)> {
        let model = (
            format!("{FOLDER}/model.mlmodel"),
            self.model.encode_to_vec(),
        );
        let manifest = ("Manifest.json".to_owned(), self.manifest().into_bytes());
        let weights = self.weights.clone();
        let weights = weights.map(|bytes| (format!("{FOLDER}/weights/weight.bin"), bytes));
        [manifest, model].into_iter().chain(weights).collect()
    }

    /// Key of the package, compiled by this `system`.
    pub fn key_for(&self, system: &str) -> Key {
        let files = self.files();
        let files = files.iter();
        let parts = files.flat_map(|(name, bytes)| [name.as_bytes(), bytes]);
        Key::of([system.as_bytes()].into_iter().chain(parts))
    }

    /// Writes the package as the folder `path`, which is made.
    ///
    /// # Errors
    /// Fails if the folder exists already or cannot be written. The written files are then removed.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        fs::create_dir(path)?;
        let written = self.files().into_iter().try_for_each(|(name, content)| {
            let file = path.join(name);
            file.parent().map_or(Ok(()), fs::create_dir_all)?;
            fs::write(file, content)
        });
        written.inspect_err(|_| {
            // The first error is the one to tell.
            let _ = fs::remove_dir_all(path);
        })
    }

    fn manifest(&self) -> String {
        let item = |name: &str, path: &str, description: &str| {
            json!({
                "author": "com.apple.CoreML",
                "description": description,
                "name": name,
                "path": format!("com.apple.CoreML/{path}"),
            })
        };
        let [model, weights] = ITEMS;
        let mut items = serde_json::Map::new();
        let description = "CoreML Model Specification";
        let name = "model.mlmodel";
        items.insert(model.to_owned(), item(name, name, description));
        if self.weights.is_some() {
            let entry = item("weights", "weights", "CoreML Model Weights");
            items.insert(weights.to_owned(), entry);
        }
        let manifest = json!({
            "fileFormatVersion": "1.0.0",
            "itemInfoEntries": items,
            "rootModelIdentifier": model,
        });
        format!("{manifest:#}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(weights: Option<Vec<u8>>) -> Package {
        let model = Model {
            specification_version: 6,
            ..Model::default()
        };
        Package { model, weights }
    }

    #[test]
    fn a_package_is_a_folder_with_a_manifest() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.mlpackage");
        package(Some(vec![1, 2])).write(&path).unwrap();
        let model = fs::read(path.join("Data/com.apple.CoreML/model.mlmodel")).unwrap();
        assert_eq!(model, [8, 6]);
        let weights = path.join("Data/com.apple.CoreML/weights/weight.bin");
        assert_eq!(fs::read(weights).unwrap(), [1, 2]);
        let manifest = fs::read(path.join("Manifest.json")).unwrap();
        let manifest: serde_json::Value = serde_json::from_slice(&manifest).unwrap();
        let root = manifest["rootModelIdentifier"].as_str().unwrap();
        let entries = &manifest["itemInfoEntries"];
        assert_eq!(entries[root]["path"], "com.apple.CoreML/model.mlmodel");
        assert_eq!(entries.as_object().unwrap().len(), 2);
        let again = package(None).write(&path);
        assert_eq!(again.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert!(path.join("Manifest.json").exists());
    }

    #[test]
    fn without_weights_there_is_no_entry_for_them() {
        let files = package(None).files();
        assert_eq!(files.len(), 2);
        assert!(!String::from_utf8_lossy(&files[0].1).contains("weights"));
    }
}
