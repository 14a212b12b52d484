//! The libraries' options for speculative decoding.

use anyhow::{Context, Result, bail};
use rustorch_llm::{
    Model, ModelDraft, NgramDraft, Selection, Session, Speculation, SpeculationOptions,
    SpeculationStats,
};
use rustorch_tensor::with_runtime;
use serde_json::{Value, json};

use crate::args::{ContextArgs, SpecType, SpeculationArgs};
use crate::devices::Devices;
use crate::failure::Usage;
use crate::model::{self, Source};

/// The source of drafts.
pub(crate) struct Guesses<'a> {
    args: &'a SpeculationArgs,
    kind: SpecType,
    draft: Option<Draft>,
}

/// A draft model, and where it is computed.
struct Draft {
    model: Model,
    source: Source,
    devices: Devices,
}

impl SpeculationArgs {
    /// The source of drafts, and the draft model, if there is one.
    ///
    /// # Errors
    /// Fails if the options contradict each other, or if the model cannot be loaded.
    pub(crate) fn open(&self, devices: &Devices) -> Result<Guesses<'_>> {
        let kind = self.kind()?;
        let draft = match &self.model_draft {
            Some(path) if kind == SpecType::DraftSimple => {
                let devices = match self.spec_draft_device {
                    Some(device) => devices.first(device).context("-devd")?,
                    None => devices.clone(),
                };
                // Places of tensors are for the model whose text it is.
                let devices = Devices {
                    gpus: devices.gpus.of_layers(),
                    ..devices
                };
                let source = Source::new(Some(path.clone()));
                let load = || source.load();
                let model = with_runtime(&devices.runtime, devices.routing, load);
                let model = model.context("-md")?;
                Some(Draft {
                    model,
                    source,
                    devices,
                })
            }
            _ => None,
        };
        Ok(Guesses {
            args: self,
            kind,
            draft,
        })
    }

    fn kind(&self) -> Result<SpecType, Usage> {
        let p_min = self.spec_draft_p_min;
        if !(0.0..=1.0).contains(&p_min) {
            let problem = format!("--spec-draft-p-min {p_min}: expected a probability, 0 to 1");
            return Err(Usage(problem));
        }
        match (self.spec_type, &self.model_draft) {
            (None, None) => Ok(SpecType::None),
            (None, Some(_)) => Ok(SpecType::DraftSimple),
            (Some(SpecType::DraftSimple), None) => Err(Usage(
                "--spec-type draft-simple needs a draft model; give it with -md FILE".to_owned(),
            )),
            (Some(SpecType::NgramSimple), Some(_)) => Err(Usage(
                "--spec-type ngram-simple uses no draft model; omit -md".to_owned(),
            )),
            (Some(kind), _) => Ok(kind),
        }
    }
}

impl Guesses<'_> {
    /// Checks that they can be guesses for this model.
    ///
    /// # Errors
    /// Fails if the draft model has another vocabulary.
    pub(crate) fn check(&self, model: &Model) -> Result<()> {
        match &self.draft {
            Some(draft) => {
                ModelDraft::check(&draft.model, model).with_context(|| draft.source.to_string())
            }
            None => Ok(()),
        }
    }

    /// Guesses for the model of `session`, if there are to be some.
    ///
    /// # Errors
    /// Fails if the draft model does not fit, or if no device can run it.
    pub(crate) fn start(
        &self,
        context: &ContextArgs,
        session: &Session,
    ) -> Result<Option<Speculation<'_>>> {
        let options = SpeculationOptions {
            max: self.args.spec_draft_n_max,
            min: self.args.spec_draft_n_min,
            ..SpeculationOptions::default()
        };
        Ok(match (self.kind, &self.draft) {
            (SpecType::NgramSimple, _) => {
                let draft = NgramDraft::new(self.args.spec_ngram_simple_size_n);
                Some(Speculation::new(draft, options))
            }
            (_, Some(draft)) => {
                let draft = self
                    .draft(draft, context, session)
                    .with_context(|| draft.source.to_string())?;
                Some(Speculation::new(draft, options))
            }
            (_, None) => None,
        })
    }

    fn draft<'d>(
        &self,
        draft: &'d Draft,
        context: &ContextArgs,
        target: &Session,
    ) -> Result<ModelDraft<'d>> {
        let Draft { model, devices, .. } = draft;
        ModelDraft::check(model, target.model())?;
        let (trained, size) = (model.spec().context, target.context());
        if trained < size {
            bail!(
                "the draft model was trained with a context of {trained} tokens, and this one \
                 has {size}; -c {trained} matches it"
            );
        }
        let context = ContextArgs {
            ctx_size: Some(size),
            ..context.clone()
        };
        let settings = context.session(model, devices)?;
        let mut session = Session::new(model, &devices.runtime, settings.session)?;
        model::load(&mut session, &Selection::best())?;
        let p_min = self.args.spec_draft_p_min;
        Ok(ModelDraft::new(session, target, p_min)?)
    }

    fn name(&self) -> &'static str {
        match self.kind {
            SpecType::None => "none",
            SpecType::DraftSimple => "draft-simple",
            SpecType::NgramSimple => "ngram-simple",
        }
    }

    /// Statistics of drafts, on a line; nothing if none were to be made.
    pub(crate) fn summary(&self, stats: &SpeculationStats) -> Option<String> {
        let SpeculationStats {
            drafted,
            accepted,
            passes,
            ..
        } = stats;
        let part = match stats.acceptance() {
            Some(part) => format!(" ({:.0} %) in {passes} passes", 100.0 * part),
            None => String::new(),
        };
        let told = format!(
            "{}: drafted {drafted} tokens, accepted {accepted}{part}",
            self.name()
        );
        (self.kind != SpecType::None).then_some(told)
    }

    /// The same for programs; null if none were to be made.
    pub(crate) fn json(&self, stats: &SpeculationStats) -> Value {
        match self.kind {
            SpecType::None => Value::Null,
            _ => json!({
                "type": self.name(),
                "drafted": stats.drafted,
                "accepted": stats.accepted,
                "acceptance": stats.acceptance(),
                "passes": stats.passes,
                "draft_ms": stats.drafting.as_secs_f64() * 1e3,
            }),
        }
    }
}
