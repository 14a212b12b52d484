//! Paths, and the outermost layer.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use axum::Router;
use axum::body::to_bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Request, State};
use axum::http::header::X_CONTENT_TYPE_OPTIONS;
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, Uri};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures_util::future::try_join_all;
use rustorch_runtime::Runtime as Devices;
use serde_json::{Map, Value, json};

use crate::connections::Limits;
use crate::error::{ApiError, Dialect};
use crate::fields::{Fields, typed};
use crate::guard::{self, Guard};
use crate::interface::{Interface, answer};
use crate::llama::slots::SlotRequest;
use crate::metrics::{self, Responses};
use crate::model::adapters::Scale;
use crate::model::{Loaded, ServedAdapters};
use crate::respond::{blocking, json_response, text_response};
use crate::{anthropic, embeddings, llama, ollama, openai, page};

/// Parts that a server may have or not.
#[derive(Clone, Debug)]
pub struct Features {
    /// The page to chat with.
    pub page: bool,
    /// The list of slots, and actions on them.
    pub slots: bool,
    /// The folder of saved slots.
    pub slot_folder: Option<PathBuf>,
    /// Answers requests for unknown models by the first one.
    pub any_model: bool,
}

impl Default for Features {
    fn default() -> Self {
        Self {
            page: true,
            slots: true,
            slot_folder: None,
            any_model: false,
        }
    }
}

/// The server's state.
pub(crate) struct App {
    /// A model changes when its adapters do. Requests keep the model that they began with.
    models: Vec<RwLock<Arc<Loaded>>>,
    pub(crate) guard: Guard,
    devices: Devices,
    limits: Limits,
    features: Features,
    responses: Responses,
}

impl App {
    /// The state of a server with these models, at least one.
    pub(crate) fn new(
        models: Vec<Arc<Loaded>>,
        guard: Guard,
        devices: Devices,
        limits: Limits,
        features: Features,
    ) -> Self {
        Self {
            models: models.into_iter().map(RwLock::new).collect(),
            guard,
            devices,
            limits,
            features,
            responses: Responses::default(),
        }
    }

    /// The model of a name; the first without one.
    ///
    /// # Errors
    /// Fails if there is no model of this name.
    fn model(&self, name: Option<&str>) -> Result<Arc<Loaded>, ApiError> {
        let models = self.models();
        // ollama's clients name a version.
        let bare = name.map(|name| name.strip_suffix(":latest").unwrap_or(name));
        let named = |model: &&Arc<Loaded>| bare.is_none_or(|name| model.is_named(name));
        let any = models.first().filter(|_| self.features.any_model);
        models.iter().find(named).or(any).cloned().ok_or_else(|| {
            let known: Vec<&str> = models.iter().map(|model| model.name.as_str()).collect();
            ApiError::no_model(name.unwrap_or_default(), &known)
        })
    }

    /// The models as they are now.
    fn models(&self) -> Vec<Arc<Loaded>> {
        let now = |model: &RwLock<Arc<Loaded>>| {
            Arc::clone(&model.read().unwrap_or_else(PoisonError::into_inner))
        };
        self.models.iter().map(now).collect()
    }

    /// Sets the scales of the first model's adapters.
    ///
    /// # Errors
    /// Fails if a scale is wrong, or if the model cannot be made again. The old model stays then.
    fn rescale(&self, scales: Value) -> Result<Value, ApiError> {
        let model = self.model(None)?;
        let given: Vec<Scale> = typed(scales)?;
        let Some(adapters) = &model.adapters else {
            return match given.is_empty() {
                true => Ok(json!({"success": true})),
                false => Err(ApiError::bad(
                    "the model has no adapters; start it with --lora FILE",
                )),
            };
        };
        let scales = adapters.scales(&given)?;
        if scales != adapters.current() {
            let changed = (adapters.rescale)(&scales).map_err(ApiError::internal)?;
            let changed = Loaded::new(changed)?;
            let first = self.models.first().map(RwLock::write);
            if let Some(first) = first {
                *first.unwrap_or_else(PoisonError::into_inner) = changed;
            }
        }
        Ok(json!({"success": true}))
    }

    /// # Errors
    /// Fails if the server shows no slots.
    fn check_slots(&self) -> Result<(), ApiError> {
        match self.features.slots {
            true => Ok(()),
            false => Err(ApiError::unsupported(
                "the server was started with --no-slots",
            )),
        }
    }
}

/// The salt of a request's cache.
#[derive(Clone, Copy)]
struct Salt(u64);

/// Bytes of a body that are read as JSON at once. More are read on another thread, while others are answered.
const SMALL: usize = 64 << 10;

/// A request for a model.
struct Asked {
    model: Arc<Loaded>,
    fields: Fields,
    salt: u64,
}

impl FromRequest<Arc<App>> for Asked {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, ApiError> {
        let salt = request.extensions().get::<Salt>().map_or(0, |salt| salt.0);
        let body = guard::body(request.into_body(), &app.limits).await?;
        let fields = match body.len() {
            0..=SMALL => Fields::read(&body)?,
            _ => blocking(move || Fields::read(&body)).await?,
        };
        Self::new(app, fields, salt)
    }
}

impl Asked {
    fn new(app: &App, mut fields: Fields, salt: u64) -> Result<Self, ApiError> {
        let name = match fields.take("model") {
            None => None,
            Some(Value::String(name)) => Some(name),
            Some(_) => return Err(ApiError::field("model", "expected a string")),
        };
        let model = app.model(name.as_deref())?;
        Ok(Self {
            model,
            fields,
            salt,
        })
    }
}

/// The name in a path.
struct Name(String);

impl FromRequestParts<Arc<App>> for Name {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, ApiError> {
        match Path::from_request_parts(parts, app).await {
            Ok(Path(name)) => Ok(Self(name)),
            Err(_) => Err(ApiError::bad("the name in the path is not UTF-8")),
        }
    }
}

/// The service.
pub(crate) fn router(app: Arc<App>) -> Router {
    let chat = post(generate::<openai::chat::Chat>);
    let completions = post(generate::<openai::completions::Completion>);
    let native = post(generate::<llama::completion::Native>);
    let responses = post(generate::<openai::responses::Responses>);
    let counted = post(input_tokens::<openai::chat::Chat>);
    let items = post(input_tokens::<openai::responses::Responses>);
    let vectors = post(async |asked: Asked| embeddings::native(asked.model, asked.fields).await);
    let ranked = post(async |asked: Asked| embeddings::rerank(asked.model, asked.fields).await);
    let models = get(models);
    Router::new()
        .merge(page(app.features.page))
        .route("/rustorch/devices", get(devices))
        .route("/health", get(health))
        .route("/v1/health", get(health))
        .route("/metrics", get(figures))
        .route("/props", get(props))
        .route("/slots", get(slots))
        .route("/slots/{name}", post(slot))
        .route("/models", models.clone())
        .route("/v1/models", models)
        .route("/v1/models/{name}", get(model))
        .route("/chat/completions", chat.clone())
        .route("/v1/chat/completions", chat)
        .route("/v1/completions", completions)
        .route("/v1/messages", post(generate::<anthropic::Messages>))
        .route("/v1/messages/count_tokens", post(count_tokens))
        .route("/chat/completions/input_tokens", counted.clone())
        .route("/v1/chat/completions/input_tokens", counted)
        .route("/responses/input_tokens", items.clone())
        .route("/v1/responses/input_tokens", items)
        .route("/responses", responses.clone())
        .route("/v1/responses", responses)
        .route("/api/chat", post(generate::<ollama::chat::Chat>))
        .route(
            "/api/generate",
            post(generate::<ollama::generate::Generate>),
        )
        .route("/api/tags", get(tags))
        .route("/api/ps", get(running))
        .route("/api/show", post(show))
        .route("/api/version", get(version))
        .route("/completion", native.clone())
        .route("/completions", native)
        .route("/infill", post(infill))
        .route("/lora-adapters", get(adapters).post(rescale))
        .route("/predict", post(predict))
        .route("/embeddings", vectors.clone())
        .route("/embedding", vectors)
        .route(
            "/v1/embeddings",
            post(async |asked: Asked| embeddings::openai(asked.model, asked.fields).await),
        )
        .route(
            "/api/embed",
            post(async |asked: Asked| embeddings::ollama(asked.model, asked.fields, "input").await),
        )
        .route(
            "/api/embeddings",
            post(async |asked: Asked| {
                embeddings::ollama(asked.model, asked.fields, "prompt").await
            }),
        )
        .route("/rerank", ranked.clone())
        .route("/reranking", ranked.clone())
        .route("/v1/rerank", ranked.clone())
        .route("/v1/reranking", ranked.clone())
        .route("/v2/rerank", ranked)
        .route("/tokenize", post(tokenize))
        .route("/detokenize", post(detokenize))
        .route("/apply-template", post(apply_template))
        .fallback(async |request: Request| ApiError::no_path(request.uri().path()))
        .method_not_allowed_fallback(async |request: Request| {
            ApiError::method(request.uri().path())
        })
        .layer(middleware::from_fn_with_state(Arc::clone(&app), outermost))
        .with_state(app)
}

/// The page's files.
fn page(is_served: bool) -> Router<Arc<App>> {
    if !is_served {
        return Router::new();
    }
    let file = get(async |Name(name): Name| page::file(&name));
    Router::new()
        .route("/", get(async || page::file(page::INDEX)))
        .route("/page/{name}", file)
}

/// Guards, gives errors the form of their interface, forbids guesses at formats, counts and logs. Texts of requests are
/// not logged.
async fn outermost(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let begin = Instant::now();
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let origins = &app.guard.origins;
    let headers = request.headers().clone();
    let mut response = match origins.preflight(&method, &headers) {
        Some(response) => response,
        None => match app.guard.check(request.uri(), &headers) {
            Err(error) => error.into_response(),
            Ok(salt) => {
                request.extensions_mut().insert(Salt(salt));
                next.run(request).await
            }
        },
    };
    if let Some(error) = response.extensions_mut().remove::<ApiError>() {
        response = error.response(Dialect::of(&path));
    }
    origins.mark(&headers, &mut response);
    // No response is a script or a style unless it says so, whatever a text within it looks like.
    let nosniff = HeaderValue::from_static("nosniff");
    response
        .headers_mut()
        .insert(X_CONTENT_TYPE_OPTIONS, nosniff);
    let status = response.status().as_u16();
    app.responses.count(status);
    tracing::info!(
        "{method} {path} {status} after {:.1} ms",
        begin.elapsed().as_secs_f64() * 1e3
    );
    response
}

async fn generate<I: Interface>(asked: Asked) -> Result<Response, ApiError> {
    answer::<I>(asked.model, asked.fields, asked.salt).await
}

/// The response to a request of a batch, in one piece.
///
/// # Errors
/// Fails if no batch has such requests, and with the errors of requests.
pub(crate) async fn batched(
    app: &App,
    method: &str,
    path: &str,
    body: Map<String, Value>,
) -> Result<Response, ApiError> {
    if method != "POST" {
        return Err(ApiError::method(path));
    }
    let mut fields = Fields::of_body(body);
    if !matches!(fields.take("stream"), None | Some(Value::Bool(false))) {
        return Err(ApiError::field("stream", "a batch has no streams"));
    }
    let asked = Asked::new(app, fields, 0)?;
    match path {
        "/v1/chat/completions" => generate::<openai::chat::Chat>(asked).await,
        "/v1/completions" => generate::<openai::completions::Completion>(asked).await,
        "/v1/responses" => generate::<openai::responses::Responses>(asked).await,
        "/v1/embeddings" => embeddings::openai(asked.model, asked.fields).await,
        path => Err(ApiError::no_path(path)),
    }
}

async fn tags(State(app): State<Arc<App>>) -> Response {
    json_response(&ollama::tags(app.models().iter().map(|model| &**model)))
}

async fn running(State(app): State<Arc<App>>) -> Response {
    json_response(&ollama::running(app.models().iter().map(|model| &**model)))
}

async fn show(asked: Asked) -> Result<Response, ApiError> {
    reply(asked, |model, fields| ollama::show(model, fields)).await
}

async fn version() -> Response {
    json_response(&json!({"version": env!("CARGO_PKG_VERSION")}))
}

async fn health() -> Response {
    json_response(&json!({"status": "ok"}))
}

async fn figures(State(app): State<Arc<App>>) -> Response {
    let models = app.models();
    let text = metrics::text(
        models.iter().map(|model| &**model),
        app.devices.fallbacks().len(),
        &app.responses,
    );
    let mut response = text_response(text, "text/plain; version=0.0.4; charset=utf-8");
    let started = models.iter().map(|model| model.created).min();
    let name = HeaderName::from_static("process-start-time-unix");
    response
        .headers_mut()
        .insert(name, started.unwrap_or_default().into());
    response
}

async fn devices(State(app): State<Arc<App>>) -> Response {
    json_response(&page::devices(&app.devices))
}

async fn models(State(app): State<Arc<App>>) -> Response {
    let data: Vec<Value> = app
        .models()
        .iter()
        .map(|model| openai::model_json(model))
        .collect();
    json_response(&json!({"object": "list", "data": data}))
}

async fn model(State(app): State<Arc<App>>, Name(name): Name) -> Result<Response, ApiError> {
    let model = app.model(Some(&name))?;
    Ok(json_response(&openai::model_json(&model)))
}

async fn props(State(app): State<Arc<App>>) -> Result<Response, ApiError> {
    let model = app.model(None)?;
    Ok(json_response(&llama::props(&model)))
}

async fn slots(State(app): State<Arc<App>>) -> Result<Response, ApiError> {
    app.check_slots()?;
    let model = app.model(None)?;
    Ok(json_response(&llama::slots::slots(&model)))
}

async fn slot(
    State(app): State<Arc<App>>,
    Name(slot): Name,
    uri: Uri,
    asked: Asked,
) -> Result<Response, ApiError> {
    app.check_slots()?;
    let request = SlotRequest {
        slot,
        query: uri.query().unwrap_or_default().to_owned(),
        fields: asked.fields,
        salt: asked.salt,
    };
    let work =
        move || llama::slots::act(&asked.model, app.features.slot_folder.as_deref(), request);
    Ok(json_response(&blocking(work).await?))
}

async fn adapters(State(app): State<Arc<App>>) -> Result<Response, ApiError> {
    let model = app.model(None)?;
    let list = model.adapters.as_ref().map(ServedAdapters::list);
    Ok(json_response(&list.unwrap_or_else(|| json!([]))))
}

async fn rescale(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let body = guard::body(request.into_body(), &app.limits).await?;
    let scales = blocking(move || {
        let scales: Value = serde_json::from_slice(&body)
            .map_err(|error| ApiError::bad(format!("the body is not JSON: {error}")))?;
        app.rescale(scales)
    });
    Ok(json_response(&scales.await?))
}

async fn infill(asked: Asked) -> Result<Response, ApiError> {
    let Asked {
        model,
        mut fields,
        salt,
    } = asked;
    let of = Arc::clone(&model);
    let fields = blocking(move || {
        llama::infill::fill(&of, &mut fields)?;
        Ok(fields)
    });
    let fields = fields.await?;
    answer::<llama::completion::Native>(model, fields, salt).await
}

async fn tokenize(asked: Asked) -> Result<Response, ApiError> {
    reply(asked, |model, fields| llama::tokenize(model, fields)).await
}

async fn detokenize(asked: Asked) -> Result<Response, ApiError> {
    reply(asked, |model, fields| llama::detokenize(model, fields)).await
}

async fn apply_template(asked: Asked) -> Result<Response, ApiError> {
    reply(asked, |model, fields| llama::apply_template(model, fields)).await
}

/// The number of tokens of a request's prompt.
async fn input_tokens<I: Interface>(asked: Asked) -> Result<Response, ApiError> {
    reply(asked, |model, fields| {
        let understood = I::read(model, fields, 0)?;
        let tokens = understood
            .plans
            .first()
            .map_or(0, |plan| plan.request.prompt.len());
        Ok(json!({"input_tokens": tokens}))
    })
    .await
}

async fn count_tokens(asked: Asked) -> Result<Response, ApiError> {
    reply(asked, |model, fields| {
        anthropic::count_tokens(model, fields)
    })
    .await
}

/// Vertex AI's requests: several of chats in one.
async fn predict(State(app): State<Arc<App>>, asked: Asked) -> Result<Response, ApiError> {
    let mut fields = asked.fields;
    let instances = match fields.take("instances") {
        Some(Value::Array(instances)) if !instances.is_empty() => instances,
        _ => {
            return Err(ApiError::field(
                "instances",
                "expected an array of requests",
            ));
        }
    };
    let chat = |(index, instance): (usize, Value)| {
        let wrong = |problem: &str| ApiError::field(format!("instances[{index}]"), problem);
        let Value::Object(instance) = instance else {
            return Err(wrong("expected an object"));
        };
        let mut fields = Fields::of_body(instance);
        match fields.take("@requestFormat") {
            Some(Value::String(format)) if format == "chatCompletions" => {}
            _ => return Err(wrong("expected the @requestFormat chatCompletions")),
        }
        if !matches!(fields.take("stream"), None | Some(Value::Bool(false))) {
            return Err(wrong("these requests have no streams"));
        }
        Asked::new(&app, fields, asked.salt)
    };
    let chats = instances.into_iter().enumerate().map(chat);
    let chats: Vec<Asked> = chats.collect::<Result<_, _>>()?;
    let bodies = chats.into_iter().map(async |asked| {
        let response = generate::<openai::chat::Chat>(asked).await?;
        let bytes = to_bytes(response.into_body(), usize::MAX).await;
        let body: Option<Value> = bytes
            .ok()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok());
        body.ok_or_else(|| ApiError::internal("a response that is no JSON"))
    });
    let predictions: Vec<Value> = try_join_all(bodies).await?;
    Ok(json_response(&json!({"predictions": predictions})))
}

/// A reply without an engine.
async fn reply(
    asked: Asked,
    work: fn(&Arc<Loaded>, Fields) -> Result<Value, ApiError>,
) -> Result<Response, ApiError> {
    let value = blocking(move || work(&asked.model, asked.fields)).await?;
    Ok(json_response(&value))
}
