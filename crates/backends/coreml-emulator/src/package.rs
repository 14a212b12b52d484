//! Files of a package.

use std::fs;
use std::path::Path;

use prost::Message;
use rustorch_coreml::proto::model::Model;
use serde_json::Value;

use crate::Error;

/// Model and weights, by way of the manifest.
pub(crate) fn read(path: &Path) -> Result<(Model, Vec<u8>), Error> {
    let file = |name: &Path| fs::read(name).map_err(|e| Error::new(name.display(), e));
    let manifest = path.join("Manifest.json");
    let text = file(&manifest)?;
    let wrong = |what: &str| Error::new(manifest.display(), what);
    let json: Value = serde_json::from_slice(&text).map_err(|e| wrong(&e.to_string()))?;
    if json["fileFormatVersion"] != "1.0.0" {
        return Err(wrong("another version of the format"));
    }
    let root = json["rootModelIdentifier"].as_str().unwrap_or_default();
    let entries = &json["itemInfoEntries"];
    let place = entries[root]["path"].as_str();
    let place = place.ok_or_else(|| wrong("no item that is the model"))?;
    let items = entries.as_object().into_iter().flatten();
    for (_, item) in items {
        let place = item["path"].as_str().unwrap_or_default();
        if item["author"] != "com.apple.CoreML" || !path.join("Data").join(place).exists() {
            return Err(wrong(&format!("item {place:?} is not there")));
        }
    }
    let model = path.join("Data").join(place);
    let spec = Model::decode(&file(&model)?[..]);
    let spec = spec.map_err(|e| Error::new(model.display(), e))?;
    let weights = model.with_file_name("weights").join("weight.bin");
    let weights = if weights.exists() {
        file(&weights)?
    } else {
        Vec::new()
    };
    Ok((spec, weights))
}
