//! Checks the expressions in placeholders. They may consist of known names, fields and method calls.

use proc_macro2::Ident;
use syn::spanned::Spanned;
use syn::{Error, Expr, ExprUnary, Result, UnOp};

use crate::template::{Hole, Template};

/// The names that a template may use.
pub(crate) enum Scope {
    /// A function's parameters and constant generics.
    Function { name: String, names: Vec<String>, has_self: bool },
    /// The fields of a struct or variant.
    Fields { name: String, names: Vec<String> },
    /// Any name. Rustc checks it.
    Open,
}

/// Checks every placeholder.
pub(crate) fn check(template: &Template, scope: &Scope) -> Result<()> {
    template.holes().try_for_each(|hole| {
        if matches!(hole.expr, Expr::Lit(_)) {
            let message = "a hole cannot contain a literal; write the text itself, or name a parameter";
            return Err(Error::new(template.lit.span(), message));
        }
        names(&hole.expr)?.into_iter().try_for_each(|name| scope.check(name))
    })
}

impl Hole {
    /// Returns true if this name occurs in the placeholder.
    pub(crate) fn uses(&self, name: &str) -> bool {
        names(&self.expr).is_ok_and(|names| names.into_iter().any(|ident| ident == name))
    }

    /// The name, if the placeholder contains only a name.
    pub(crate) fn only_name(&self) -> Option<&Ident> {
        match &self.expr {
            Expr::Path(path) if path.qself.is_none() => path.path.get_ident(),
            _ => None,
        }
    }
}

/// The names in an expression. A path with several segments is a constant, which rustc checks.
fn names(expr: &Expr) -> Result<Vec<&Ident>> {
    let mut found = Vec::new();
    walk(expr, &mut found)?;
    Ok(found)
}

fn walk<'a>(expr: &'a Expr, found: &mut Vec<&'a Ident>) -> Result<()> {
    match expr {
        Expr::Path(path) if path.qself.is_none() => found.extend(path.path.get_ident()),
        Expr::Lit(_) | Expr::Path(_) => {}
        Expr::Field(field) => walk(&field.base, found)?,
        Expr::Paren(paren) => walk(&paren.expr, found)?,
        Expr::Group(group) => walk(&group.expr, found)?,
        Expr::Unary(ExprUnary { op: UnOp::Deref(_), expr, .. }) => walk(expr, found)?,
        Expr::Reference(reference) if reference.mutability.is_none() => walk(&reference.expr, found)?,
        Expr::Index(index) => {
            walk(&index.expr, found)?;
            walk(&index.index, found)?;
        }
        Expr::MethodCall(call) => {
            walk(&call.receiver, found)?;
            call.args.iter().try_for_each(|arg| walk(arg, found))?;
        }
        other => {
            return Err(Error::new(
                other.span(),
                "a hole takes parameters, fields, indices and method calls; compute anything else in a method, or in a parameter",
            ));
        }
    }
    Ok(())
}

/// Returns true for a name in capitals, which is a constant too.
fn is_constant(name: &str) -> bool {
    name.chars().all(|c| !c.is_lowercase()) && name.chars().any(char::is_uppercase)
}

impl Scope {
    fn check(&self, ident: &Ident) -> Result<()> {
        let wanted = ident.to_string();
        let (what, owner, names) = match self {
            Scope::Function { name, names, has_self: false } if wanted == "self" => {
                let known = list("parameter", names);
                return Err(Error::new(ident.span(), format!("no `self` in `fn {name}`, which is no method; {known}")));
            }
            Scope::Function { name, names, .. } => ("parameter", format!("`fn {name}`"), names),
            Scope::Fields { name, names } => ("field", format!("`{name}`"), names),
            Scope::Open => return Ok(()),
        };
        if wanted == "self" || names.contains(&wanted) || is_constant(&wanted) {
            return Ok(());
        }
        let (wanted, known) = (number(&wanted), list(what, names));
        Err(Error::new(ident.span(), format!("no {what} `{wanted}` in {owner}; {known}")))
    }
}

/// The number of the field that `_0` stands for.
fn number(name: &str) -> &str {
    name.strip_prefix('_').filter(|rest| rest.parse::<u32>().is_ok()).unwrap_or(name)
}

fn list(what: &str, names: &[String]) -> String {
    match names {
        [] => format!("it has no {what}s"),
        [one] => format!("its only {what} is `{}`", number(one)),
        more => {
            let more: Vec<_> = more.iter().map(|name| number(name)).collect();
            format!("its {what}s are `{}`", more.join("`, `"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proc_macro2::Span;
    use syn::LitStr;

    fn try_in(scope: &Scope, text: &str) -> Result<()> {
        check(&Template::parse(LitStr::new(text, Span::call_site()))?, scope)
    }

    fn function(names: &[&str], has_self: bool) -> Scope {
        Scope::Function { name: "ship".into(), names: names.iter().map(|&name| name.to_owned()).collect(), has_self }
    }

    #[test]
    fn known_names() {
        let scope = function(&["id", "item"], true);
        for good in
            ["{id}", "{item.sku}", "{self.0}", "{item.get(id, 5)[0]}", "{*id}", "{(&id).x()}", "{Self::N}", "{REGION}"]
        {
            assert!(try_in(&scope, good).is_ok(), "{good}");
        }
        assert!(try_in(&Scope::Open, "{anything}").is_ok());
    }

    #[test]
    fn unknown_names_list_the_known_ones() {
        let message = |names: &[&str], text| try_in(&function(names, false), text).unwrap_err().to_string();
        assert_eq!(message(&["id", "qty"], "{idd}"), "no parameter `idd` in `fn ship`; its parameters are `id`, `qty`");
        assert_eq!(message(&["id"], "{id.get(x)}"), "no parameter `x` in `fn ship`; its only parameter is `id`");
        assert_eq!(message(&[], "{self.x}"), "no `self` in `fn ship`, which is no method; it has no parameters");
    }

    #[test]
    fn other_expressions() {
        for bad in [
            "{id + id}",
            "{f(id)}",
            "{id?}",
            "{5}",
            "{-id}",
            "{&mut id}",
            "{|| id}",
            "{if id {} else {}}",
            "{vec![id]}",
        ] {
            assert!(try_in(&function(&["id"], false), bad).is_err(), "{bad}");
        }
    }
}
