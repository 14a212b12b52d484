//! Tests that are particular to this crate.

use rustorch_grammar::{Constraint, Grammar, GrammarError, Piece, Vocabulary};
use serde_json::{Value, json};

use crate::{BYTES, END, accepts, accepts_text, by_bytes, by_words, of_schema, vocabulary};

fn constrain(grammar: Grammar) -> Result<Constraint, GrammarError> {
    grammar.constrain(&vocabulary())
}

fn gbnf(text: &str) -> Result<Constraint, GrammarError> {
    constrain(Grammar::Gbnf(text.to_owned()))
}

/// The path and the reason for which a schema is refused.
fn refusal(schema: &Value) -> (String, String) {
    match of_schema(&vocabulary(), schema) {
        Err(GrammarError::Schema { path, reason }) => (path, reason),
        other => panic!("{schema}: {:?}", other.err()),
    }
}

#[test]
fn texts_are_the_same_in_whatever_tokens_they_come() {
    let schema = json!({"type": "object", "properties": {
        "ab": {"type": "boolean"}, "é": {"type": "string"}}, "additionalProperties": false});
    let constraint = of_schema(&vocabulary(), &schema).unwrap();
    for text in [
        "{}",
        r#"{"ab":true}"#,
        r#"{"ab":true,"é":"abcé"}"#,
        "{\n \"ab\": true}",
    ] {
        assert!(accepts_text(&constraint, text), "{text}");
    }
    for text in [
        "",
        "{",
        r#"{"ab":"abc"}"#,
        r#"{"é":"","ab":true}"#,
        r#"{"ab":true,"ab":true}"#,
    ] {
        assert!(!accepts_text(&constraint, text), "{text}");
    }
}

#[test]
fn white_space_is_bounded() {
    let constraint = of_schema(&vocabulary(), &json!({"type": "array"})).unwrap();
    let lines =
        |lines: usize, spaces: usize| format!("[{}{}]", "\n".repeat(lines), " ".repeat(spaces));
    for (text, expected) in [
        (lines(0, 1), true),
        (lines(2, 20), true),
        (lines(0, 2), false),
        (lines(3, 0), false),
        (lines(1, 21), false),
        (" []".to_owned(), false),
        ("[] ".to_owned(), false),
    ] {
        assert_eq!(accepts_text(&constraint, &text), expected, "{text:?}");
    }
}

#[test]
fn longer_lexemes_do_not_hide_shorter_ones() {
    let constraint = gbnf(r#"root ::= ("a" "b" | "abc" "d" | [a-z]{2} "x")"#).unwrap();
    for (text, expected) in [("ab", true), ("abcd", true), ("abx", true), ("abc", false)] {
        assert_eq!(accepts_text(&constraint, text), expected, "{text}");
    }
}

/// However deep a grammar is, it takes no more of the stack than there is.
#[test]
fn deep_grammars_are_held_to_or_refused() {
    let signs = format!("root ::= \"a\"{}", "?".repeat(100_000));
    assert!(matches!(gbnf(&signs), Err(GrammarError::Gbnf { .. })));
    let groups = |n: usize, inner: &str| format!("{}{inner}{}", "(".repeat(n), ")".repeat(n));
    assert!(gbnf(&format!("root ::= {}", groups(100_000, "[a]"))).is_err());
    let rule = |i: usize| format!("r{i} ::= {}\n", groups(199, &format!("[a] r{} [b]", i + 1)));
    let rules: String = (0..500).map(rule).collect();
    let constraint = gbnf(&format!("root ::= r0\n{rules}r500 ::= \"c\"")).unwrap();
    let text = |n: usize| format!("{}c{}", "a".repeat(500), "b".repeat(n));
    assert!(accepts(&constraint, &by_bytes(&text(500))));
    assert!(!accepts(&constraint, &by_bytes(&text(499))));
}

/// Ends of characters come before their begins in a network: whatever goes through it as often as there are characters
/// takes minutes here.
#[test]
fn regular_expressions_as_large_as_may_be_are_read_at_once() {
    let pattern = r"\p{Greek}+|(?:é|中){150000}[^\s&& S]?";
    let mut constraint = constrain(Grammar::Regex(pattern.to_owned())).unwrap();
    for token in by_bytes("é中é") {
        constraint.accept(token).unwrap();
        assert!(!constraint.is_accepting().unwrap());
    }
    for token in by_bytes("αS") {
        let allowed = constraint.allows(token).unwrap();
        assert!(!allowed, "the repetition is not at its end");
    }
    let larger = pattern.replace("150000", "300000");
    let refused = constrain(Grammar::Regex(larger)).err().unwrap().to_string();
    assert!(refused.contains("too large; repeat less"), "{refused}");
}

#[test]
fn every_kind_of_grammar_holds() {
    let regex = constrain(Grammar::Regex(r"[a-c]+/\d{2}".to_owned())).unwrap();
    let lark = Grammar::Lark("start: WORD (\",\" WORD)*\nWORD: /[a-z]+/".to_owned());
    let lark = constrain(lark).unwrap();
    for (constraint, text, expected) in [
        (&regex, "abc/12", true),
        (&regex, "abc/1", false),
        (&regex, "abd/12", false),
        (&lark, "ab,abc", true),
        (&lark, "ab,", false),
    ] {
        assert_eq!(accepts_text(constraint, text), expected, "{text}");
    }
}

#[test]
fn tokens_can_be_taken_back() {
    let mut constraint = gbnf(r#"root ::= "ab" [0-9]+ "#).unwrap();
    for token in by_words("ab12") {
        constraint.accept(token).unwrap();
    }
    assert!(constraint.is_accepting().unwrap());
    constraint.accept(END).unwrap();
    assert!(constraint.is_complete());
    assert!(matches!(
        constraint.mask(),
        Err(GrammarError::Failed { .. })
    ));
    constraint.rollback(2).unwrap();
    assert!(!constraint.is_accepting().unwrap());
    assert!(constraint.mask().unwrap().allows(BYTES + u32::from(b'7')));
    assert!(!constraint.mask().unwrap().allows(END));
    assert!(constraint.rollback(9).is_err());
    // Broken for good.
    assert!(constraint.mask().is_err() && constraint.allows(END).is_err());
}

#[test]
fn logits_outside_the_mask_become_impossible() {
    let mut constraint = gbnf(r#"root ::= [ab]"#).unwrap();
    let len = vocabulary().len() + 50;
    let mut logits = vec![1.0; len];
    let mask = constraint.mask().unwrap();
    mask.apply(&mut logits);
    let possible = |id: &u32| logits[*id as usize] == 1.0;
    let found: Vec<u32> = (0..len as u32).filter(possible).collect();
    assert_eq!(found, by_bytes("ab"));
    assert_eq!(mask.count(), 2);
    assert!(found.iter().all(|&id| mask.allows(id)) && !mask.allows(u32::MAX));
}

/// A grammar that asks for any token does not ask for the end.
#[test]
fn the_end_comes_only_where_a_text_may_end() {
    let mut constraint = gbnf("root ::= (!<[11]>)* <[11]>").unwrap();
    for _ in 0..3 {
        assert!(!constraint.mask().unwrap().allows(END));
        assert_eq!(
            constraint.accept(END),
            Err(GrammarError::Token { token: END })
        );
        constraint.accept(12).unwrap();
    }
    constraint.accept(11).unwrap();
    assert!(constraint.is_accepting().unwrap());
    // Nothing but the end is left.
    assert_eq!(constraint.mask().unwrap().count(), 1);
    assert!(constraint.mask().unwrap().allows(END));
}

#[test]
fn control_tokens_come_only_by_name() {
    let constraint = constrain(Grammar::Regex("(?s:.*)".to_owned())).unwrap();
    let mask = constraint.clone().mask().unwrap().clone();
    assert!(mask.allows(END) && (1..BYTES).all(|id| !mask.allows(id)));
    let mut named = gbnf("root ::= <|control-7|>").unwrap();
    assert!(named.mask().unwrap().allows(7));
    assert!(!named.mask().unwrap().allows(8));
    let spelled = "<|control-7|>";
    assert!(!accepts(&named, &by_bytes(spelled)));
}

#[test]
fn a_text_that_no_token_continues_is_an_error() {
    let pieces = ["", "a", "b"].map(|text| Piece::Bytes(text.into()));
    let vocabulary = Vocabulary::from_pieces(&pieces, &[0]).unwrap();
    let grammar = Grammar::Gbnf(r#"root ::= "ac""#.to_owned());
    let mut constraint = grammar.constrain(&vocabulary).unwrap();
    constraint.accept(1).unwrap();
    for _ in 0..2 {
        assert!(matches!(
            constraint.mask(),
            Err(GrammarError::Failed { .. })
        ));
    }
    assert!(constraint.accept(2).is_err());
}

#[test]
fn vocabularies_without_an_end_are_refused() {
    let pieces = [Piece::Bytes(b"a".to_vec())];
    for ends in [&[][..], &[1]] {
        let error = Vocabulary::from_pieces(&pieces, ends).err().unwrap();
        assert!(matches!(error, GrammarError::Vocabulary { .. }), "{error}");
    }
}

#[test]
fn wrong_grammars_are_told_with_their_place() {
    for (grammar, line, column, why) in [
        ("", 1, 1, "no rule root"),
        ("rot ::= \"a\"", 1, 12, "no rule root"),
        ("root ::= expr", 1, 10, "no rule expr"),
        ("root ::= \"a\" |\n  (\"b\" | [c", 2, 12, "incomplete"),
        ("root ::= \"a\"\nb = \"c\"", 2, 3, "::="),
        ("root ::= \"\\q\"", 1, 11, "\\q means nothing"),
        ("root ::= [z-a]", 1, 11, "ends before it begins"),
        ("root ::= []", 1, 10, "no character"),
        ("root ::= * \"a\"", 1, 10, "nothing before *"),
        ("root ::= \"a\"{3,2}", 1, 18, "below the minimum"),
        ("root ::= \"a\"{9999}", 1, 18, "too many"),
        ("root ::= <[99999]>", 1, 10, "not a token"),
        ("root ::= <|nothing|>", 1, 10, "not a token"),
        ("root ::= \"a\" root", 1, 1, "never ends"),
        ("root ::= \"a\" | b\nb ::= c\nc ::= b", 1, 16, "never ends"),
        ("root ::= (\"a\"{2000}){2000}", 1, 1, "larger than"),
    ] {
        let error = gbnf(grammar).err();
        let Some(GrammarError::Gbnf {
            line: l,
            column: c,
            reason,
        }) = error
        else {
            panic!("{grammar}: {error:?}");
        };
        assert!(reason.contains(why), "{grammar}: {reason}");
        assert_eq!((l, c), (line, column), "{grammar}: {reason}");
    }
    for grammar in [
        Grammar::Regex(String::new()),
        Grammar::Regex("ab\\".to_owned()),
        Grammar::Regex("(ab".to_owned()),
        Grammar::Lark("start: nothing".to_owned()),
        Grammar::Lark(String::new()),
    ] {
        let error = constrain(grammar.clone()).err();
        assert!(
            matches!(error, Some(GrammarError::Refused { .. })),
            "{grammar:?} {error:?}"
        );
    }
    let error = constrain(Grammar::JsonSchema("{".to_owned())).err();
    assert!(
        matches!(error, Some(GrammarError::NotJson { .. })),
        "{error:?}"
    );
}

#[test]
fn schemas_are_refused_with_the_path() {
    let huge = json!({"items": {"minLength": 1_000_000}});
    for (schema, path, why) in [
        (
            json!({"properties": {"a/b": {"not": {}}}}),
            "#/properties/a~1b/not",
            "not supported",
        ),
        (
            json!({"items": {"uniqueItems": true}}),
            "#/items/uniqueItems",
            "not supported",
        ),
        (
            json!({"anyOf": [{}, {"format": "regex"}]}),
            "#/anyOf/1/format",
            "there are date",
        ),
        (json!({"pattern": "a(?=b)"}), "#/pattern", "look-around"),
        (json!({"pattern": "(a)\\1"}), "#/pattern", "\\1"),
        (json!({"pattern": "a{99999}"}), "#/pattern", "repeats more"),
        (huge, "#/items/minLength", "too many"),
        (json!({"$ref": "other.json"}), "#/$ref", "outside"),
        (json!({"$ref": "#/$defs/a"}), "#/$ref", "nothing at"),
        (json!({"type": "text"}), "#/type", "expected one or more of"),
        (
            json!({"enum": [1, 9_007_199_254_740_993_i64]}),
            "#/enum/1",
            "2⁵³",
        ),
        (
            json!({"$schema": "https://example.com"}),
            "#/$schema",
            "not a known version",
        ),
        (
            json!({"properties": {"a": {"oneOf": [{}, {}]}}}),
            "#/properties/a/oneOf",
            "anyOf",
        ),
        (
            json!({"properties": {"a": {"properties": {"b": {}}, "minProperties": 2}}}),
            "#/properties/a",
            "maxProperties only",
        ),
        (json!({"const": {"a": ["\u{1}"]}}), "#/const/a/0", "U+0001"),
        (json!({"required": ["\u{7f}"]}), "#/required/0", "U+007F"),
        (json!(7), "#", "a schema is"),
        (
            json!({"type": "object", "properties": {"a": false}, "required": ["a"]}),
            "#/properties/a",
            "nsatisfiable",
        ),
    ] {
        let (found, reason) = refusal(&schema);
        assert!(reason.contains(why), "{schema}: {reason}");
        assert_eq!(found, path, "{schema}: {reason}");
    }
}

/// However deep references go, they take no more of the stack than there is.
#[test]
fn deep_references_are_followed_or_refused() {
    let chain = |n: usize| {
        let definition = |i: usize| match i + 1 < n {
            true => json!({"type": "array", "items": {"$ref": format!("#/$defs/d{}", i + 1)}}),
            false => json!({"type": "null"}),
        };
        let all: serde_json::Map<String, Value> =
            (0..n).map(|i| (format!("d{i}"), definition(i))).collect();
        json!({"$ref": "#/$defs/d0", "$defs": all})
    };
    let constraint = of_schema(&vocabulary(), &chain(1000)).unwrap();
    assert!(accepts_text(&constraint, "[[[]]]"));
    assert!(!accepts_text(&constraint, "[[[1]]]"));
    let (path, reason) = refusal(&chain(20_000));
    assert!(
        path == "#" && reason.contains("levels down"),
        "{path}: {reason}"
    );
}

/// Chains of rules may be of any length, with or without texts of their own.
#[test]
fn long_chains_of_rules_are_held_to() {
    for own in ["", "\"a\"? "] {
        let rules: String = (0..5000)
            .map(|i| format!("r{i} ::= {own}r{}\n", i + 1))
            .collect();
        let constraint = gbnf(&format!("root ::= r0\n{rules}r5000 ::= \"c\"")).unwrap();
        assert!(accepts(&constraint, &by_bytes("c")));
        assert_eq!(accepts(&constraint, &by_bytes("aac")), !own.is_empty());
        assert!(!accepts(&constraint, &by_bytes("cc")));
    }
}

#[test]
fn recursion_needs_a_way_out() {
    let list = json!({"type": "object", "properties": {"next": {"$ref": "#"}}});
    let constraint = of_schema(&vocabulary(), &list).unwrap();
    assert!(accepts_text(&constraint, r#"{"next":{"next":{}}}"#));
    assert!(!accepts_text(&constraint, r#"{"next":{"next":1}}"#));
    let mut endless = list.clone();
    endless["required"] = json!(["next"]);
    for (schema, path) in [
        (json!({"$ref": "#"}), "#"),
        (endless, "#"),
        (
            json!({"anyOf": [{"type": "null"}, {"$ref": "#/$defs/a"}], "$defs": {
                "a": {"allOf": [{"$ref": "#/$defs/b"}]},
                "b": {"type": "array", "items": {"$ref": "#/$defs/a"}, "minItems": 1}}}),
            "#/$defs/a",
        ),
    ] {
        let (found, reason) = refusal(&schema);
        assert!(reason.contains("without end"), "{schema}: {reason}");
        assert_eq!(found, path, "{schema}");
    }
}

/// Another spelling of a name does not evade the name's schema. A schema's own options of the
/// engine evade nothing.
#[test]
fn names_cannot_be_spelled_otherwise() {
    let schema = json!({
        "type": "object", "properties": {"ab": {"type": "integer"}}, "required": ["ab"],
        "x-guidance": {"lenient": true, "coerce_one_of": true}});
    let constraint = of_schema(&vocabulary(), &schema).unwrap();
    assert!(accepts_text(&constraint, r#"{"ab":1,"c":"x"}"#));
    for text in [
        r#"{"ab":1,"\u0061b":"x"}"#,
        r#"{"ab":1,"\u0061\u0062":"x"}"#,
    ] {
        assert!(!accepts_text(&constraint, text), "{text}");
    }
}

#[test]
fn json_is_framed_by_marks() {
    let framed = |before: &str, after: &str, repeats| {
        let grammar = Grammar::Framed {
            before: before.to_owned(),
            schema: json!({"enum": [1, 2]}).to_string(),
            after: after.to_owned(),
            repeats,
        };
        constrain(grammar).unwrap()
    };
    let text = framed("<call>", "</call>", false);
    for (said, expected) in [
        ("<call>1</call>", true),
        ("<call>\n2\n</call>", true),
        ("<call>3</call>", false),
        ("<call>1", false),
        ("1", false),
        ("<call>1</call>\n<call>2</call>", false),
    ] {
        assert_eq!(accepts_text(&text, said), expected, "{said}");
    }
    let several = framed("<call>", "</call>", true);
    assert!(accepts_text(&several, "<call>1</call>\n<call>2</call>"));
    assert!(accepts_text(&framed("", "", false), "2"));
    // A mark may be a control token, and then it is no text.
    let control = framed("<|control-7|>", "<|control-8|>", false);
    let one = BYTES + u32::from(b'1');
    assert!(accepts(&control, &[7, one, 8]));
    assert!(!accepts_text(&control, "<|control-7|>1<|control-8|>"));
}
