//! Forms, each with a text in it.

use rustorch_grammar::Grammar;

pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) grammar: Grammar,
    pub(crate) text: String,
}

pub(crate) fn cases() -> Vec<Case> {
    let case = |name, grammar: fn(String) -> Grammar, form: &str, text: &str| Case {
        name,
        grammar: grammar(form.to_owned()),
        text: text.to_owned(),
    };
    let schema = |name, form, text| case(name, Grammar::JsonSchema, form, text);
    let gbnf = |name, form, text| case(name, Grammar::Gbnf, form, text);
    let regex = |name, form, text| case(name, Grammar::Regex, form, text);
    vec![
        schema("schema: a person", PERSON, PERSON_TEXT),
        schema("schema: an order", ORDER, ORDER_TEXT),
        schema("schema: a function's call", CALL, CALL_TEXT),
        schema(
            "schema: any JSON object",
            r#"{"type": "object"}"#,
            ORDER_TEXT,
        ),
        gbnf("GBNF: JSON", JSON, ORDER_TEXT),
        gbnf("GBNF: arithmetic", ARITHMETIC, ARITHMETIC_TEXT),
        gbnf("GBNF: chess", CHESS, CHESS_TEXT),
        gbnf("GBNF: a list", LIST, LIST_TEXT),
        gbnf("GBNF: like C", C, C_TEXT),
        gbnf("GBNF: at most 200 letters", LETTERS, LETTERS_TEXT),
        gbnf("GBNF: 100 rules", &hundred_rules(), RULES_TEXT),
        regex("regex: [a-z ]+", "[a-z ]+", LETTERS_TEXT),
        regex("regex: a date", DATE, "2026-11-23T09:41:07+01:00"),
        regex(
            "regex: a mail address",
            MAIL,
            "transverable.quin-gra@conform.per.co",
        ),
        regex("regex: at most 200 letters", "[a-z ]{1,200}", LETTERS_TEXT),
    ]
}

const PERSON: &str = r#"{"type": "object", "properties": {
    "name": {"type": "string"}, "age": {"type": "integer", "minimum": 0, "maximum": 150},
    "mail": {"type": "string", "format": "email"},
    "tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}, "maxItems": 10},
    "note": {"type": ["string", "null"], "maxLength": 200}},
    "required": ["name", "age"], "additionalProperties": false}"#;
const PERSON_TEXT: &str = r#"{"name": "transverable quingrament", "age": 42, "mail": "conform@pre.co",
 "tags": ["red", "blue"], "note": "unableness of subtions and permenting transverly"}"#;

const ORDER: &str = r##"{"type": "object", "properties": {
    "id": {"type": "string", "format": "uuid"}, "at": {"type": "string", "format": "date-time"},
    "customer": {"$ref": "#/$defs/party"},
    "lines": {"type": "array", "minItems": 1, "items": {"type": "object", "properties": {
        "article": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{4}$"},
        "count": {"type": "integer", "minimum": 1}, "price": {"type": "number"}},
        "required": ["article", "count", "price"], "additionalProperties": false}}},
    "required": ["id", "at", "customer", "lines"], "additionalProperties": false,
    "$defs": {"party": {"type": "object", "properties": {
        "name": {"type": "string", "minLength": 1}, "street": {"type": "string"},
        "country": {"enum": ["at", "be", "de", "fr", "it", "nl"]}},
        "required": ["name", "country"], "additionalProperties": false}}}"##;
const ORDER_TEXT: &str = r#"{"id": "3f2504e0-4f89-41d3-9a0c-0305e82c3301", "at": "2026-11-23T09:41:07Z",
 "customer": {"name": "Conform & Transverly", "street": "Permentation 12", "country": "de"}, "lines": [
 {"article": "QU-1024", "count": 3, "price": 19.5}, {"article": "GR-2048", "count": 12, "price": 0.75},
 {"article": "WI-4096", "count": 1, "price": 1200}]}"#;

const CALL: &str = r#"{"anyOf": [
    {"type": "object", "properties": {"name": {"const": "search"}, "arguments": {"type": "object",
        "properties": {"query": {"type": "string"}, "limit": {"type": "integer"}},
        "required": ["query"], "additionalProperties": false}},
        "required": ["name", "arguments"], "additionalProperties": false},
    {"type": "object", "properties": {"name": {"const": "send"}, "arguments": {"type": "object",
        "properties": {"to": {"type": "array", "items": {"type": "string", "format": "email"}},
            "body": {"type": "string"}}, "required": ["to", "body"], "additionalProperties": false}},
        "required": ["name", "arguments"], "additionalProperties": false}]}"#;
const CALL_TEXT: &str = r#"{"name": "send", "arguments": {"to": ["conform@pre.co", "per@sub.trans.co"],
 "body": "The unableness of subtions is\npermenting: see \"transverable\" in the inform."}}"#;

const JSON: &str = r#"
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws ( string ":" ws value ("," ws string ":" ws value)* )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9]{1,15})? ws
ws     ::= | " " | "\n" [ \t]{0,20}
"#;

const ARITHMETIC: &str = r#"
root   ::= (sum ws "=" ws number "\n")+
sum    ::= sum ws [-+] ws term | term
term   ::= term ws [*/] ws factor | factor
factor ::= number | name | "(" ws sum ws ")" | name "(" sum ("," ws sum)* ")"
number ::= [0-9]+ ("." [0-9]+)?
name   ::= [a-z] [a-z0-9_]*
ws     ::= [ \t]*
"#;
const ARITHMETIC_TEXT: &str = "(12 + conform) * 3.25 - per_2 / (transver - 7) = 41\n\
    quin(1, gra(2, 3) * 4, ment) - ((1 + 2) * (3 + (4 - able))) = 0.125\n";

const CHESS: &str = r#"
root   ::= [1-9] [0-9]? ". " move " " move "\n" ([1-9] [0-9]? ". " move (" " move)? "\n")*
move   ::= (pawn | piece | castle) [+#]?
piece  ::= [NBKQR] [a-h]? [1-8]? "x"? [a-h] [1-8]
pawn   ::= ([a-h] "x")? [a-h] [1-8] ("=" [NBQR])?
castle ::= "O-O" "-O"?
"#;
const CHESS_TEXT: &str = "1. e4 e5\n2. Nf3 Nc6\n3. Bb5 a6\n4. Bxc6 dxc6\n5. O-O f6\n6. d4 exd4\n\
    7. Nxd4 c5\n8. Nb3 Qxd1\n9. Rxd1 Bg4\n10. f3 Be6\n11. Nc3 Bd6\n12. Be3 b6\n";

const LIST: &str = r#"
root ::= item+
item ::= "- " [^\r\n\x0b\x0c\x85\u2028\u2029]+ "\n"
"#;
const LIST_TEXT: &str = "- transverable subtions, permenting\n- quingrament (conform)\n- 12 pre-informed \
    unableness\n- per the ingerly: ver \"wi\" xe yo\n- za ful ness\n";

const C: &str = r#"
root       ::= (function)+
function   ::= type " " name "(" parameters? ")" ws block
parameters ::= type " " name ("," ws type " " name)*
type       ::= ("int" | "float" | "char" | "void") "*"?
block      ::= "{" ws (statement ws)* "}" ws
statement  ::= type " " name (ws "=" ws expression)? ";" |
               name index? ws "=" ws expression ";" |
               "return" (" " expression)? ";" |
               "while" ws "(" expression ")" ws block |
               "for" ws "(" name ws "=" ws expression ";" ws expression ";" ws name "++)" ws block |
               "if" ws "(" expression ")" ws block ("else" ws block)? |
               name "(" arguments? ")" ";" |
               "//" [^\n]* "\n"
index      ::= "[" expression "]"
arguments  ::= expression ("," ws expression)*
expression ::= term (ws operator ws term)*
operator   ::= "+" | "-" | "*" | "/" | "<=" | ">=" | "==" | "!=" | "<" | ">" | "&&" | "||"
term       ::= name index? | number | "(" expression ")" | name "(" arguments? ")" | string | "-" term
string     ::= "\"" ([^"\\\n] | "\\" ["\\nt0])* "\""
name       ::= [a-zA-Z_] [a-zA-Z_0-9]*
number     ::= [0-9]+ ("." [0-9]+)?
ws         ::= ([ \t\n] ws)?
"#;
const C_TEXT: &str = "int conform(int n, char* per) {\n    int quin = 0;\n    // the transverable sum\n    \
    for (i = 0; i < n; i++) {\n        quin = quin + gra[i] * 2;\n        if (per[i] == 0) {\n            \
    return -1;\n        }\n    }\n    print(\"%d of %d\\n\", quin, n);\n    return quin / (n - 1);\n}\n";

const LETTERS: &str = "root ::= sentence\nsentence ::= [a-z ]{1,200} \".\"?";
const LETTERS_TEXT: &str = "transverable quingrament unableness of subtions and permenting transverly in \
    the conform verness";

/// Properties, each of which may be a list of what the next one may be.
fn hundred_rules() -> String {
    const PROPERTIES: usize = 49;
    let mut properties = Vec::new();
    let mut rules = String::new();
    for i in 0..PROPERTIES {
        properties.push(format!("(property{i} \",\" ws)?"));
        let next = (i + 1) % PROPERTIES;
        rules += &format!("property{i} ::= \"\\\"property{i}\\\":\" ws value{i}\n");
        rules += &format!(
            "value{i} ::= string | [0-9]+ | \"[\" ws value{next} (\",\" ws value{next})* \"]\"\n"
        );
    }
    rules += "string ::= \"\\\"\" [^\"\\\\\n]* \"\\\"\"\nws ::= [ \\n]*\n";
    let properties = properties.join(" ");
    format!("root ::= \"{{\" ws {properties} \"}}\"\n{rules}")
}

const RULES_TEXT: &str = r#"{"property0": "transverable quingrament", "property1": 42,
 "property7": ["conform", [1, 2, ["per"]]], "property30": [["unableness"], "subtion"],}"#;

const DATE: &str = "[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])(T([01][0-9]|2[0-3])(:[0-5][0-9]){2}\
    (Z|[+-][0-9]{2}:[0-9]{2}))?";
const MAIL: &str = r"[\w.+-]+@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+";
