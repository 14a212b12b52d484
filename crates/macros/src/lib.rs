//! An attribute that notes callers of the library's functions, and the derive macro of modules.

mod module;

use proc_macro::TokenStream;
use proc_macro2::{Group, TokenStream as Tokens, TokenTree};
use quote::{ToTokens, quote};
use syn::parse::{Parse, ParseStream, Parser, Result};
use syn::{Attribute, ImplItem, Signature, Token, Visibility, braced};

/// Functions of an `impl` block or a trait, or a single function, note their callers. Errors found
/// when their operations are recorded or computed name the function, and the user's line. This is
/// for the crates of the project alone that have `rustorch-tensor`'s module `call` at their root.
///
/// In a trait, and in an `impl` of one, these are all functions that have a body. Elsewhere they are the
/// public ones that return a `RusTorchResult`, for others record nothing. `#[track_calls(linalg)]` is of
/// functions whose names begin with `linalg.`
#[proc_macro_attribute]
pub fn track_calls(module: TokenStream, item: TokenStream) -> TokenStream {
    let prefix = match module.is_empty() {
        true => String::new(),
        false => format!("{module}."),
    };
    if let Ok(function) = syn::parse::<Function>(item.clone()) {
        return function.tracked(&prefix).into();
    }
    let tracked = (|input: ParseStream| tracked_block(input, &prefix)).parse(item);
    tracked.unwrap_or_else(|e| e.into_compile_error()).into()
}

/// Makes a structure a module whose parts are its fields, by name: `rustorch::nn::Module` lists the
/// allowed fields. Fields marked `#[module(skip)]` are not parts. `#[module(rename = "self")]` gives
/// a part another name. A raw identifier, such as `r#type`, gives its name without `r#`. The module is
/// `Clone` if its fields are, and its clones are deep.
#[proc_macro_derive(Module, attributes(module))]
pub fn derive_module(item: TokenStream) -> TokenStream {
    let derived = syn::parse(item).and_then(module::derived);
    derived.unwrap_or_else(|e| e.into_compile_error()).into()
}

/// A function. Its body stays as it is: operators of macros' arguments bind as they did.
struct Function {
    attributes: Vec<Attribute>,
    visibility: Visibility,
    signature: Signature,
    body: Tokens,
}

impl Parse for Function {
    fn parse(input: ParseStream) -> Result<Self> {
        let body;
        Ok(Self {
            attributes: input.call(Attribute::parse_outer)?,
            visibility: input.parse()?,
            signature: input.parse()?,
            body: {
                braced!(body in input);
                body.parse()?
            },
        })
    }
}

impl ToTokens for Function {
    fn to_tokens(&self, tokens: &mut Tokens) {
        let Self {
            attributes,
            visibility,
            signature,
            body,
        } = self;
        tokens.extend(quote!(#(#attributes)* #visibility #signature { #body }));
    }
}

impl Function {
    /// Returns whether it is public, and can fail as tensors' operations do.
    fn records(&self) -> bool {
        let result = self.signature.output.to_token_stream().to_string();
        matches!(self.visibility, Visibility::Public(_)) && result.contains("RusTorchResult")
    }

    /// The same that notes who called it.
    fn tracked(self, prefix: &str) -> Tokens {
        let (name, body) = (format!("{prefix}{}", self.signature.ident), self.body);
        let body = quote!(let _call = crate::call::enter(#name); #body);
        let function = Self { body, ..self };
        quote!(#[track_caller] #function)
    }
}

/// An `impl` block, or a trait, with its functions tracked.
fn tracked_block(input: ParseStream, prefix: &str) -> Result<Tokens> {
    let (mut header, mut is_of_trait) = (Tokens::new(), false);
    loop {
        is_of_trait |= input.peek(Token![for]) || input.peek(Token![trait]);
        match input.parse()? {
            TokenTree::Group(block) if block.delimiter() == proc_macro2::Delimiter::Brace => {
                let items = |input: ParseStream| tracked_items(input, prefix, is_of_trait);
                let items = items.parse2(block.stream())?;
                let block = Group::new(block.delimiter(), items);
                return Ok(quote!(#header #block));
            }
            token => header.extend([token]),
        }
    }
}

fn tracked_items(input: ParseStream, prefix: &str, is_of_trait: bool) -> Result<Tokens> {
    let mut items = Tokens::new();
    while !input.is_empty() {
        let is_function = input.fork().parse::<Function>().is_ok();
        items.extend(match is_function {
            true => match input.parse::<Function>()? {
                function if is_of_trait || function.records() => function.tracked(prefix),
                function => function.into_token_stream(),
            },
            false => input.parse::<ImplItem>()?.into_token_stream(),
        });
    }
    Ok(items)
}
