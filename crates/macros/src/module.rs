//! `#[derive(Module)]`.

use proc_macro2::TokenStream as Tokens;
use quote::quote;
use syn::{Data, DeriveInput, Error, Field, Member, Result, parse_quote};

/// `Visit` and `Module` of a structure.
pub(crate) fn derived(input: DeriveInput) -> Result<Tokens> {
    let DeriveInput {
        ident, generics, ..
    } = &input;
    let Data::Struct(data) = &input.data else {
        return Err(Error::new_spanned(ident, "only a structure is a module"));
    };
    let (mut parts, mut bounded) = (Vec::new(), generics.clone());
    if !generics.params.is_empty() {
        let bounds = bounded.make_where_clause();
        bounds.predicates.push(parse_quote!(Self: Send + Sync));
    }
    for (member, field) in data.fields.members().zip(&data.fields) {
        if !is_skipped(field)? {
            let name = match &member {
                Member::Named(name) => name.to_string(),
                Member::Unnamed(index) => index.index.to_string(),
            };
            parts.push((member, name));
            if !generics.params.is_empty() {
                let ty = &field.ty;
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
            quote! {
                ::rustorch::nn::Visit::#method(
                    #reference self.#member, &::rustorch::nn::join_names(name, #part), visitor,
                );
            }
        });
        quote!(#(#calls)*)
    };
    let (shown, changed) = (visit("visit", quote!(&)), visit("visit_mut", quote!(&mut)));
    let unused = parts.is_empty().then(|| quote!(let _ = (name, visitor);));
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
    })
}

/// Is it marked `#[module(skip)]`?
fn is_skipped(field: &Field) -> Result<bool> {
    let mut skipped = false;
    for attribute in field.attrs.iter().filter(|a| a.path().is_ident("module")) {
        attribute.parse_nested_meta(|meta| match meta.path.is_ident("skip") {
            true => {
                skipped = true;
                Ok(())
            }
            false => Err(meta.error("expected `skip`")),
        })?;
    }
    Ok(skipped)
}
