//! Devices of a model's tensors.

use std::collections::BTreeMap;

use regex_automata::meta::Regex;
use rustorch_runtime::DeviceType;

use crate::LlmError;
use crate::spec::TensorSpec;

/// Devices of a model's tensors: a device for each layer, and for single tensors that are elsewhere.
///
/// A product is computed where its weights are. A layer's state, its norms and its sums are on the layer's device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    layers: Vec<DeviceType>,
    elsewhere: BTreeMap<String, DeviceType>,
}

impl Placement {
    /// The device of each layer, from the first on. Layers that are not here are left to the runtime.
    pub fn of_layers(layers: Vec<DeviceType>) -> Self {
        Self {
            layers,
            elsewhere: BTreeMap::new(),
        }
    }

    /// The same with the tensor `name` on another device than its layer.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, device: DeviceType) -> Self {
        self.elsewhere.insert(name.into(), device);
        self
    }

    /// Returns whether everything is left to the runtime.
    pub fn is_empty(&self) -> bool {
        self.layers.is_empty() && self.elsewhere.is_empty()
    }

    /// The devices of the layers, from the first on.
    pub fn layers(&self) -> &[DeviceType] {
        &self.layers
    }

    /// The device of layer `index`.
    pub fn layer(&self, index: usize) -> Option<DeviceType> {
        self.layers.get(index).copied()
    }

    /// The device of the tensor `name`, if it is not its layer's.
    pub fn elsewhere(&self, name: &str) -> Option<DeviceType> {
        self.elsewhere.get(name).copied()
    }
}

/// Number of layers on devices other than the processor, together.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum GpuLayers {
    /// All layers that fit, if such a device is the best choice.
    #[default]
    Auto,
    /// This many, from the last one on; fewer if they do not fit, all if the model has fewer.
    AtMost(usize),
}

/// The tensors of a [`TensorRule`].
#[derive(Clone, Debug)]
enum Subject {
    /// Tensors with a part of their name that matches.
    Matching(Regex),
    /// Experts of this number of first layers.
    Experts(usize),
}

/// A rule for the device of some tensors.
#[derive(Clone, Debug)]
pub struct TensorRule {
    /// The option and its value, for errors and reasons.
    name: String,
    subject: Subject,
    /// The device.
    pub device: DeviceType,
}

impl TensorRule {
    /// Tensors with a part of their name that matches the regular expression `pattern`. `name` is the option and its
    /// value.
    ///
    /// # Errors
    /// Fails if the pattern is not a regular expression.
    pub fn matching(
        name: impl Into<String>,
        pattern: &str,
        device: DeviceType,
    ) -> Result<Self, LlmError> {
        let name = name.into();
        let wrong = |problem: String| {
            LlmError::Input(format!(
                "{name}: {pattern:?} is not a regular expression: {problem}"
            ))
        };
        if pattern.is_empty() {
            return Err(wrong("it is empty".to_owned()));
        }
        let regex = Regex::new(pattern).map_err(|error| {
            let syntax = error.syntax_error().map(ToString::to_string);
            let text = syntax.unwrap_or_else(|| error.to_string());
            let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
            wrong(lines.next_back().unwrap_or_default().to_owned())
        })?;
        Ok(Self {
            name,
            subject: Subject::Matching(regex),
            device,
        })
    }

    /// The experts' weights of the first `layers` layers, on the processor. `name` is the option and its value.
    pub fn experts(name: impl Into<String>, layers: usize) -> Self {
        Self {
            name: name.into(),
            subject: Subject::Experts(layers),
            device: DeviceType::Cpu,
        }
    }

    /// The option and its value.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Is the tensor among its own?
    fn has(&self, tensor: &TensorSpec) -> bool {
        match &self.subject {
            Subject::Matching(regex) => regex.is_match(&tensor.name),
            Subject::Experts(layers) => {
                tensor.are_experts() && tensor.layer().is_some_and(|layer| layer < *layers)
            }
        }
    }

    fn without_tensors(&self) -> LlmError {
        let Self { name, .. } = self;
        LlmError::Input(match self.subject {
            Subject::Matching(_) => format!(
                "{name}: no matrix of the model has such a name; `inspect` lists the names of all tensors"
            ),
            Subject::Experts(_) => {
                format!("{name}: the model has no experts; leave the option out")
            }
        })
    }
}

/// The rules for the devices of a model.
#[derive(Clone, Debug, Default)]
pub struct PlacementOptions {
    /// Number of layers on devices other than the processor.
    pub gpu_layers: GpuLayers,
    /// Devices of single tensors. The first of several rules for a tensor counts.
    pub rules: Vec<TensorRule>,
}

/// A tensor that a rule has placed.
#[derive(Clone, Debug)]
pub(crate) struct Ruled<'a> {
    pub(crate) tensor: &'a TensorSpec,
    pub(crate) device: DeviceType,
    /// The rule's name.
    pub(crate) rule: &'a str,
}

impl PlacementOptions {
    /// The matrices among `tensors` that rules place.
    ///
    /// # Errors
    /// A rule is for none of them.
    pub(crate) fn ruled<'a>(
        &'a self,
        tensors: &'a [TensorSpec],
    ) -> Result<Vec<Ruled<'a>>, LlmError> {
        let matrices = || tensors.iter().filter(|tensor| tensor.role().is_some());
        for rule in &self.rules {
            let is_wanted = !matches!(rule.subject, Subject::Experts(0));
            if is_wanted && !matrices().any(|tensor| rule.has(tensor)) {
                return Err(rule.without_tensors());
            }
        }
        let placed = matrices().filter_map(|tensor| {
            let rule = self.rules.iter().find(|rule| rule.has(tensor))?;
            Some(Ruled {
                tensor,
                device: rule.device,
                rule: &rule.name,
            })
        });
        Ok(placed.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPU: DeviceType = DeviceType::Cuda(0);

    fn tensors() -> Vec<TensorSpec> {
        let tensor = |name: &str, shape: &[usize]| TensorSpec {
            name: name.to_owned(),
            shape: shape.to_vec(),
        };
        vec![
            tensor("blk.0.attn_norm.weight", &[8]),
            tensor("blk.0.attn_q.weight", &[8, 8]),
            tensor("blk.0.ffn_up_exps.weight", &[4, 8, 8]),
            tensor("blk.1.ffn_up_exps.weight", &[4, 8, 8]),
            tensor("blk.1.ffn_up_shexp.weight", &[8, 8]),
            tensor("output.weight", &[9, 8]),
        ]
    }

    fn placed(rules: Vec<TensorRule>) -> Result<Vec<(String, DeviceType)>, String> {
        let options = PlacementOptions {
            rules,
            ..PlacementOptions::default()
        };
        let tensors = tensors();
        let ruled = options.ruled(&tensors).map_err(|error| error.to_string())?;
        let named = ruled.iter().map(|r| (r.tensor.name.clone(), r.device));
        Ok(named.collect())
    }

    fn rule(pattern: &str, device: DeviceType) -> TensorRule {
        TensorRule::matching(format!("-ot {pattern}={device}"), pattern, device).unwrap()
    }

    #[test]
    fn the_first_rule_of_a_tensor_counts() {
        let found = placed(vec![
            rule(r"blk\.1\..*exps", GPU),
            TensorRule::experts("--cpu-moe", usize::MAX),
            rule("^output", GPU),
        ]);
        let expected = [
            ("blk.0.ffn_up_exps.weight", DeviceType::Cpu),
            ("blk.1.ffn_up_exps.weight", GPU),
            ("output.weight", GPU),
        ];
        let expected = expected.map(|(name, device)| (name.to_owned(), device));
        assert_eq!(found.unwrap(), expected);
    }

    #[test]
    fn experts_of_the_first_layers() {
        let names = |layers| placed(vec![TensorRule::experts("--n-cpu-moe", layers)]).unwrap();
        assert_eq!(names(0).len(), 0);
        assert_eq!(names(1).len(), 1);
        assert_eq!(names(9).len(), 2);
    }

    #[test]
    fn rules_for_nothing_and_bad_patterns_are_errors() {
        let error = placed(vec![rule("attn_norm", GPU)]).unwrap_err();
        assert!(
            error.starts_with("-ot attn_norm=cuda:0: no matrix"),
            "{error}"
        );
        for bad in ["(", "[a", "a{2,1}", "*", "", r"(?!a)"] {
            let error = TensorRule::matching("-ot", bad, GPU)
                .unwrap_err()
                .to_string();
            assert!(error.contains("is not a regular expression"), "{error}");
            assert!(!error.contains('\n'), "{error}");
        }
        let dense = &tensors()[5..];
        let options = PlacementOptions {
            rules: vec![TensorRule::experts("--cpu-moe", 5)],
            ..PlacementOptions::default()
        };
        let error = options.ruled(dense).unwrap_err().to_string();
        assert!(error.contains("no experts"), "{error}");
    }
}
