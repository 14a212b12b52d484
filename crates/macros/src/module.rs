//! `#[derive(Module)]`.

use std::collections::HashSet;

use proc_macro2::{Ident, TokenStream as Tokens, TokenTree};
use quote::{ToTokens, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Error, Field, LitStr, Member, Result, parse_quote};

/// `Visit`, `Module` and a deep `Clone` of a structure.
pub(crate) fn derived(input: DeriveInput) -> Result<Tokens> {
    let DeriveInput {
        ident, generics, ..
    } = &input;
    let Data::Struct(data) = &input.data else {
        return Err(Error::new_spanned(ident, "only a structure is a module"));
    };
    let (mut parts, mut bounded) = (Vec::new(), generics.clone());
    let mut clones = Vec::new();
    let mut names = HashSet::new();
    if !generics.params.is_empty() {
        let bounds = bounded.make_where_clause();
        bounds.predicates.push(parse_quote!(Self: Send + Sync));
    }
    for (member, field) in data.fields.members().zip(&data.fields) {
        let name = part_name(&member, field)?;
        clones.push(match name {
            Some(_) => quote!(#member: ::core::clone::Clone::clone(&self.#member)),
            None => quote!(#member: ::rustorch::nn::cloned_apart(&self.#member)),
        });
        if let Some(name) = name {
            if !names.insert(name.clone()) {
                let problem = format!("another field is called `{name}` in the state, too");
                return Err(Error::new_spanned(field, problem));
            }
            parts.push((member, name));
            let ty = &field.ty;
            if !generics.params.is_empty() && !mentions(ty.to_token_stream(), ident) {
                let bounds = bounded.make_where_clause();
                bounds
                    .predicates
                    .push(parse_quote!(#ty: ::rustorch::nn::Visit));
            }
        }
    }
    let visit = |method: &str, reference: Tokens| {
        let method = syn::Ident::new(method, proc_macro2::Span::call_site());
        let calls = parts.iter().map(|(member, part)| {
            // A field that is not a part of a module gives an error at that field.
            let at = proc_macro2::Span::call_site().located_at(member.span());
            quote_spanned! {at=>
                ::rustorch::nn::Visit::#method(
                    #reference self.#member, &::rustorch::nn::join_names(name, #part), visitor,
                );
            }
        });
        quote!(#(#calls)*)
    };
    let (shown, changed) = (visit("visit", quote!(&)), visit("visit_mut", quote!(&mut)));
    let clone = quote!(Self { #(#clones,)* });
    let clone = match parts.is_empty() {
        true => clone,
        false => quote!(::rustorch::nn::cloned(|| #clone)),
    };
    let mut cloneable = bounded.clone();
    for field in &data.fields {
        // With a field that is not `Clone` the module is none, but still a module. The lifetime lets the compiler ask
        // only where the module is cloned.
        let ty = &field.ty;
        if !mentions(ty.to_token_stream(), ident) {
            let bounds = cloneable.make_where_clause();
            bounds
                .predicates
                .push(parse_quote!(for<'__clone> #ty: ::core::clone::Clone));
        }
    }
    let unused = parts.is_empty().then(|| quote!(let _ = (name, visitor);));
    let (_, _, clone_bounds) = cloneable.split_for_impl();
    let (for_generics, of_generics, bounds) = bounded.split_for_impl();
    Ok(quote! {
        impl #for_generics ::rustorch::nn::Visit for #ident #of_generics #bounds {
            fn visit(&self, name: &str, visitor: &mut dyn FnMut(&str, ::rustorch::nn::Leaf)) {
                #shown #unused
            }

            fn visit_mut(&mut self, name: &str, visitor: &mut dyn FnMut(&str, ::rustorch::nn::LeafMut)) {
                #changed #unused
            }
        }

        impl #for_generics ::rustorch::nn::Module for #ident #of_generics #bounds {}

        // Its name is in the compiler's message if the user derives `Clone`, too.
        ::rustorch::nn::derive_module_writes_clone_so_remove_clone_from_your_derives! {
            [#for_generics] [#ident #of_generics #clone_bounds] {
                #[track_caller]
                fn clone(&self) -> Self {
                    #clone
                }
            }
        }
    })
}

/// Does a type name a structure, or `Self`? A bound of a type inside itself would be asked for ever.
fn mentions(tokens: Tokens, structure: &Ident) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(name) => name == *structure || name == "Self",
        TokenTree::Group(group) => mentions(group.stream(), structure),
        TokenTree::Punct(_) | TokenTree::Literal(_) => false,
    })
}

/// The name of a field's part: that of `#[module(rename = "…")]`, or the field's own. A field that is marked
/// `#[module(skip)]` is not a part.
fn part_name(member: &Member, field: &Field) -> Result<Option<String>> {
    let (mut skipped, mut renamed) = (false, None);
    for attribute in field.attrs.iter().filter(|a| a.path().is_ident("module")) {
        attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("skip") {
                skipped = true;
            } else if meta.path.is_ident("rename") {
                renamed = Some(name_of(&meta.value()?.parse()?)?);
            } else {
                return Err(meta.error("expected `skip` or `rename = \"name\"`"));
            }
            Ok(())
        })?;
        if skipped && renamed.is_some() {
            let problem = "a field that is skipped has no name to change";
            return Err(Error::new_spanned(attribute, problem));
        }
    }
    let own = || match member {
        Member::Named(name) => name.unraw().to_string(),
        Member::Unnamed(index) => index.index.to_string(),
    };
    Ok((!skipped).then(|| renamed.unwrap_or_else(own)))
}

/// A name that PyTorch allows.
fn name_of(text: &LitStr) -> Result<String> {
    let name = text.value();
    match name.is_empty() || name.contains('.') {
        true => Err(Error::new_spanned(
            text,
            "expected a name that is not empty and has no point, as in PyTorch",
        )),
        false => Ok(name),
    }
}
