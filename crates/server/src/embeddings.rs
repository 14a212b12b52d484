//! Embeddings and reranking, in the forms of OpenAI, llama-server, ollama, Cohere and Hugging Face.

use std::sync::Arc;
use std::time::Instant;

use axum::response::Response;
use rustorch_llm::spec::Pooling;
use rustorch_llm::{Encoder, Scaling};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::fields::Fields;
use crate::interface::ignoring;
use crate::model::Loaded;
use crate::model::vectors::{Rows, Work};
use crate::prompts::Prompts;
use crate::respond::{blocking, json_response};

/// Documents that a request may have.
const MOST: usize = 2048;

/// A request for vectors, with the tokens of its texts.
struct Texts<T> {
    asked: T,
    ids: Vec<Vec<u32>>,
    ignored: Vec<String>,
}

impl<T> Texts<T> {
    fn tokens(&self) -> usize {
        self.ids.iter().map(Vec::len).sum()
    }
}

/// Understands a request, whose texts are in the field `param`.
async fn texts<T: DeserializeOwned + Send + 'static>(
    model: &Arc<Loaded>,
    mut fields: Fields,
    param: &'static str,
    cuts: fn(&T) -> bool,
) -> Result<Texts<T>, ApiError> {
    let model = Arc::clone(model);
    blocking(move || {
        fields.skip(&["user", "keep_alive", "options"]);
        let ignored = fields.ignored().to_vec();
        let given = fields.take(param);
        let asked: T = fields.into()?;
        let given = given.ok_or_else(|| ApiError::field(param, "this field is missing"))?;
        let mut ids = Vec::new();
        for prompt in Prompts::read(&model, param, given)?.all {
            ids.push(fitting(&model, prompt.ids, cuts(&asked))?);
        }
        Ok(Texts {
            asked,
            ids,
            ignored,
        })
    })
    .await
}

/// Tokens that fit the context. If they are cut, a last token that marks the end stays.
fn fitting(model: &Loaded, mut ids: Vec<u32>, cuts: bool) -> Result<Vec<u32>, ApiError> {
    let most = model.context();
    if ids.len() > most {
        if !cuts {
            return Err(ApiError::input(ids.len(), most));
        }
        let end = ids.last().copied();
        let end = end.filter(|&id| model.tokenizer().is_control(id));
        ids.truncate(most - usize::from(end.is_some()));
        ids.extend(end);
    }
    match ids.is_empty() {
        true => Err(ApiError::bad("a text is empty; give a text")),
        false => Ok(ids),
    }
}

/// One vector for each text, of length 1.
async fn embed(
    model: &Arc<Loaded>,
    texts: Vec<Vec<u32>>,
    dimensions: Option<usize>,
) -> Result<Vec<Vec<f32>>, ApiError> {
    let work = Work::Embed { texts, dimensions };
    let Rows {
        mut rows, pooling, ..
    } = model.vectors.ask(&model.model, work).await?;
    match pooling {
        Pooling::None => {
            let problem = "the model was started with pooling none: /embeddings has the vectors of its tokens";
            return Err(ApiError::bad(problem));
        }
        Pooling::Rank => return Err(ApiError::bad("the model scores documents: ask /rerank")),
        _ => {}
    }
    for row in &mut rows {
        Scaling::Norm(2).apply(row);
    }
    Ok(rows)
}

/// OpenAI's request, besides `input`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OpenAiRequest {
    encoding_format: Option<Encoding>,
    dimensions: Option<usize>,
}

/// The form of a vector.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum Encoding {
    Float,
    Base64,
}

/// OpenAI's embeddings.
///
/// # Errors
/// Fails for a wrong field, and if the model makes no vectors.
pub(crate) async fn openai(model: Arc<Loaded>, fields: Fields) -> Result<Response, ApiError> {
    let texts = texts::<OpenAiRequest>(&model, fields, "input", |_| false).await?;
    let tokens = texts.tokens();
    let rows = embed(&model, texts.ids, texts.asked.dimensions).await?;
    let encoding = texts.asked.encoding_format.unwrap_or(Encoding::Float);
    let one = |(index, row): (usize, Vec<f32>)| {
        let vector = match encoding {
            Encoding::Float => json!(row),
            Encoding::Base64 => base64(row.iter().flat_map(|x| x.to_le_bytes())).into(),
        };
        json!({"object": "embedding", "index": index, "embedding": vector})
    };
    let body = json!({
        "object": "list",
        "model": model.name,
        "data": rows.into_iter().enumerate().map(one).collect::<Vec<_>>(),
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    });
    Ok(ignoring(json_response(&body), &texts.ignored))
}

/// llama-server's request, besides `content`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NativeRequest {
    embd_normalize: Option<i32>,
}

/// llama-server's embeddings: a matrix for each text, of one row unless the pooling is none.
///
/// # Errors
/// Fails for a wrong field, and if the model makes no vectors.
pub(crate) async fn native(model: Arc<Loaded>, fields: Fields) -> Result<Response, ApiError> {
    let param = match fields.has("input") {
        true => "input",
        false => "content",
    };
    let texts = texts::<NativeRequest>(&model, fields, param, |_| false).await?;
    let work = Work::Embed {
        texts: texts.ids,
        dimensions: None,
    };
    let Rows {
        rows,
        width,
        pooling,
    } = model.vectors.ask(&model.model, work).await?;
    let one = |(index, mut row): (usize, Vec<f32>)| {
        let width = match pooling {
            // Vectors of tokens are never scaled, as in llama-server.
            Pooling::None => width,
            Pooling::Rank => row.len(),
            _ => {
                Scaling::from(texts.asked.embd_normalize.unwrap_or(2)).apply(&mut row);
                row.len()
            }
        };
        let matrix: Vec<&[f32]> = row.chunks_exact(width.max(1)).collect();
        json!({"index": index, "embedding": matrix})
    };
    let body: Value = rows.into_iter().enumerate().map(one).collect();
    Ok(ignoring(json_response(&body), &texts.ignored))
}

/// ollama's request, besides the texts.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OllamaRequest {
    truncate: Option<bool>,
    dimensions: Option<usize>,
}

/// ollama's embeddings: `input` has several texts, and `prompt` one, whose vector comes alone.
///
/// # Errors
/// Fails for a wrong field, and if the model makes no vectors.
pub(crate) async fn ollama(
    model: Arc<Loaded>,
    fields: Fields,
    param: &'static str,
) -> Result<Response, ApiError> {
    let begin = Instant::now();
    let cuts = |asked: &OllamaRequest| asked.truncate.unwrap_or(true);
    let texts = texts::<OllamaRequest>(&model, fields, param, cuts).await?;
    let tokens = texts.tokens();
    let rows = embed(&model, texts.ids, texts.asked.dimensions).await?;
    let body = match (param, rows.as_slice()) {
        ("prompt", [row]) => json!({"embedding": row}),
        _ => json!({
            "model": model.name,
            "embeddings": rows,
            "total_duration": begin.elapsed().as_nanos() as u64,
            "load_duration": 0,
            "prompt_eval_count": tokens,
        }),
    };
    Ok(ignoring(json_response(&body), &texts.ignored))
}

/// A request for scores, in Cohere's and Jina's form, or with `texts` in Hugging Face's.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RankRequest {
    query: String,
    documents: Option<Vec<Document>>,
    texts: Option<Vec<Document>>,
    top_n: Option<usize>,
    #[serde(default)]
    return_documents: bool,
    #[serde(default)]
    return_text: bool,
    /// Cuts documents that are too long.
    truncate: Option<bool>,
    /// Whether the scores are the classifier's own. They always are.
    raw_scores: Option<bool>,
}

/// A document, alone or as an object.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Document {
    Text(String),
    Object { text: String },
}

/// Scores of documents, the best first.
///
/// # Errors
/// Fails for a wrong field, and if the model has no classifier.
pub(crate) async fn rerank(model: Arc<Loaded>, mut fields: Fields) -> Result<Response, ApiError> {
    fields.skip(&[
        "user",
        "rank_fields",
        "max_chunks_per_doc",
        "max_tokens_per_doc",
        "truncation_direction",
    ]);
    let mut ignored = fields.ignored().to_vec();
    let asked: RankRequest = fields.into()?;
    if asked.raw_scores == Some(false) {
        ignored.push("raw_scores".to_owned());
    }
    let cuts = asked.truncate.unwrap_or(false);
    let is_tei = asked.texts.is_some();
    let given = match (asked.documents, asked.texts) {
        (Some(documents), None) | (None, Some(documents)) => documents,
        (None, None) => return Err(ApiError::field("documents", "this field is missing")),
        _ => {
            return Err(ApiError::field(
                "texts",
                "the documents came in another field, too",
            ));
        }
    };
    if !(1..=MOST).contains(&given.len()) {
        let problem = format!("{} documents; expected 1 to {MOST}", given.len());
        return Err(ApiError::field("documents", problem));
    }
    let text = |document| match document {
        Document::Text(text) | Document::Object { text } => text,
    };
    let documents: Vec<String> = given.into_iter().map(text).collect();
    let query = asked.query;
    let of = Arc::clone(&model);
    let counted = (query.clone(), documents.clone());
    let tokens = blocking(move || pair_tokens(&of, &counted.0, &counted.1, cuts)).await?;
    let work = Work::Rank {
        query,
        documents: documents.clone(),
    };
    let rows = model.vectors.ask(&model.model, work).await?.rows;
    let mut scores: Vec<(usize, f32)> = rows.into_iter().map(|row| row[0]).enumerate().collect();
    scores.sort_by(|a, b| b.1.total_cmp(&a.1));
    scores.truncate(asked.top_n.unwrap_or(usize::MAX));
    let score = match is_tei {
        true => "score",
        false => "relevance_score",
    };
    let one = |(index, value): (usize, f32)| {
        let mut result = json!({"index": index, score: value});
        if asked.return_documents {
            result["document"] = json!({"text": documents[index]});
        }
        if asked.return_text {
            result["text"] = documents[index].as_str().into();
        }
        result
    };
    let results: Value = scores.into_iter().map(one).collect();
    let body = match is_tei {
        true => results,
        false => json!({
            "object": "list",
            "model": model.name,
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
            "results": results,
        }),
    };
    Ok(ignoring(json_response(&body), &ignored))
}

/// Tokens of a query with each document.
///
/// # Errors
/// Fails if one is too long for the context or for a score, unless it is cut.
fn pair_tokens(
    model: &Loaded,
    query: &str,
    documents: &[String],
    cuts: bool,
) -> Result<usize, ApiError> {
    let most = model.context().min(model.model.spec().pool.tokens);
    let mut total = 0;
    for document in documents {
        let count = Encoder::pair_tokens(&model.model, query, document)?;
        // The encoder cuts by itself.
        if count > most && !cuts {
            return Err(ApiError::input(count, most));
        }
        total += count.min(most);
    }
    Ok(total)
}

/// Bytes as text.
fn base64(bytes: impl Iterator<Item = u8>) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bytes: Vec<u8> = bytes.collect();
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let byte = |index: usize| u32::from(group.get(index).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..4 {
            text.push(match place <= group.len() {
                true => char::from(DIGITS[(bits >> (18 - 6 * place)) as usize % 64]),
                false => '=',
            });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn base64_is_that_of_rfc_4648() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(super::base64(bytes.bytes()), text);
        }
    }
}
