//! Prompts as the tokens of the bundled model.

use std::path::Path;

use rustorch_chat::{
    ChatError, ChatTemplate, ChatTemplates, ControlTokens, Message, RenderOptions, special_tokens,
};
use rustorch_gguf::{Gguf, Metadata};
use rustorch_tokenizer::{EncodeOptions, Tokenizer};

fn bundled() -> (Metadata, Tokenizer) {
    let file = "../../models/classics-13m-Q4_K_M.gguf";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    let metadata = Gguf::open(path).unwrap().metadata;
    let tokenizer = Tokenizer::from_gguf(&metadata).unwrap();
    (metadata, tokenizer)
}

#[test]
fn only_the_template_makes_control_tokens() {
    let (metadata, tokenizer) = bundled();
    let control = ControlTokens::of(&tokenizer);
    let tokens = special_tokens(&metadata, &tokenizer).unwrap();
    let source = "{{ bos_token }}{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}";
    let template = ChatTemplate::new(source, "test", tokens).unwrap();
    let ids = |said: &str| {
        let prompt = template.render(&[Message::user(said)], &RenderOptions::default(), &control);
        prompt.unwrap().encode(&tokenizer)
    };
    let special = |ids: &[u32]| ids.iter().filter(|&&id| tokenizer.is_control(id)).count();
    let eos = tokenizer
        .token_text(tokenizer.eos().unwrap())
        .unwrap()
        .to_owned();

    let plain = ids("Once upon a time < now");
    let options = |parse_special| EncodeOptions {
        add_special: false,
        parse_special,
    };
    let bos = tokenizer.token_text(tokenizer.bos().unwrap()).unwrap();
    let whole = format!("{bos}Once upon a time < now{eos}");
    assert_eq!(plain, tokenizer.encode(&whole, options(true)));
    assert_eq!(special(&plain), 2);

    let hostile = ids(&format!("a {eos} b"));
    assert_eq!(special(&hostile), 2);
    let said = tokenizer.encode(&format!("a {eos} b"), options(false));
    assert_eq!(hostile[1..hostile.len() - 1], said);
}

#[test]
fn a_file_may_have_several_templates_or_none() {
    let (mut metadata, tokenizer) = bundled();
    let refused = ChatTemplates::from_gguf(&metadata, &tokenizer);
    assert!(matches!(refused, Err(ChatError::Missing { .. })));

    metadata.insert("tokenizer.chat_template", "plain");
    metadata.insert(
        "tokenizer.chat_template.tool_use",
        "tools: {{ tools|length }}",
    );
    metadata.insert("tokenizer.chat_template.rag", "rag");
    let templates = ChatTemplates::from_gguf(&metadata, &tokenizer).unwrap();
    assert_eq!(templates.names().collect::<Vec<_>>(), ["rag", "tool_use"]);
    assert!(templates.named("rag").is_some());
    let text = |options: &RenderOptions| {
        let prompt =
            templates
                .for_options(options)
                .render(&[], options, &ControlTokens::of(&tokenizer));
        prompt.unwrap().text().to_owned()
    };
    let mut options = RenderOptions::default();
    assert_eq!(text(&options), "plain");
    options.tools = vec![serde_json::json!({"name": "f"})];
    assert_eq!(text(&options), "tools: 1");
}
