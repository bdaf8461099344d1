//! A parsed file: the paths that its items use, including macros, its imports, statics, functions and unsafe code.
//!
//! Knows: Rust's syntax. Never: reads a file, or resolves paths; [`super::sources`] does. Start reading at [`parse`].

use proc_macro2::{Span, TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, BinOp, Expr, Ident, Item, Lit, Meta, UseTree, Visibility};

#[derive(Default)]
pub struct Parsed {
    /// The modules within the file by their paths below it; the empty path is the file itself.
    pub modules: BTreeMap<Vec<String>, Module>,
    /// The modules that are declared for tests only, in files of their own.
    pub test_modules: Vec<String>,
    pub written: Vec<Written>,
    pub functions: Vec<Function>,
    /// Names of public structs, enums, traits and aliases at the top of the file.
    pub public_types: Vec<(usize, String)>,
    pub statics: Vec<Static>,
    /// Start lines of unsafe blocks, functions, implementations and foreign blocks.
    pub unsafe_lines: Vec<usize>,
    /// Called methods, except in tests.
    pub methods: Vec<(usize, String)>,
    /// Public functions, constants and statics, except in tests.
    pub public_items: Vec<PublicItem>,
    /// Sums and differences, except in tests.
    pub sums: Vec<Sum>,
}

/// The names of a module, and their meaning.
#[derive(Default)]
pub struct Module {
    pub imports: BTreeMap<String, Vec<String>>,
    /// The prefixes of `::*`.
    pub globs: Vec<Vec<String>>,
    /// Names that the module defines.
    pub items: BTreeSet<String>,
}

/// A path as written in the source.
pub struct Written {
    pub line: usize,
    /// The module within the file.
    pub module: Vec<String>,
    /// Its parts; `::name` begins with an empty part, and a macro's last part ends with `!`.
    pub path: Vec<String>,
    pub is_test: bool,
    /// Whether `pub use` names it, which alone does not use it.
    pub is_export: bool,
}

/// A public function, constant or static.
pub struct PublicItem {
    pub line: usize,
    pub name: String,
    /// The module within the file.
    pub module: Vec<String>,
    /// Whether it belongs to a type or a trait.
    pub is_associated: bool,
}

pub struct Function {
    pub line: usize,
    pub name: String,
    /// Whether it has the attribute `#[test]`.
    pub is_test: bool,
    /// Lines from the name to the last brace; 0 in tests, in macros and without a body.
    pub lines: usize,
}

/// A sum or difference of two named values.
pub struct Sum {
    pub line: usize,
    /// The last name of the left operand: a variable, field or method.
    pub left: String,
    /// The path of the right operand, or of the function that returns it.
    pub right: Vec<String>,
}

pub struct Static {
    pub line: usize,
    pub name: String,
    /// The words of its type and value.
    pub words: BTreeSet<String>,
    pub kind: StaticKind,
    pub is_test: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StaticKind {
    Plain,
    Mutable,
    ThreadLocal,
    Foreign,
}

pub fn parse(text: &str) -> syn::Result<Parsed> {
    let file = syn::parse_file(text)?;
    let mut visitor = Visitor { parsed: Parsed::default(), module: Vec::new(), tests: 0, is_export: false };
    visitor.parsed.modules.insert(Vec::new(), Module::default());
    visitor.visit_file(&file);
    Ok(visitor.parsed)
}

struct Visitor {
    parsed: Parsed,
    module: Vec<String>,
    /// The nesting depth of items that are compiled for tests only.
    tests: usize,
    /// Whether it reads a `pub use`.
    is_export: bool,
}

fn line(span: Span) -> usize {
    span.start().line
}

fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("cfg") => list.tokens.to_string() == "test",
        Meta::Path(path) => path.is_ident("test"),
        _ => false,
    })
}

fn attributes_of(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

/// Returns the path of a constant, or of a called function.
fn expression_path(value: &Expr) -> Option<Vec<String>> {
    match value {
        Expr::Path(path) => Some(path.path.segments.iter().map(|segment| segment.ident.to_string()).collect()),
        Expr::Call(call) => expression_path(&call.func),
        _ => None,
    }
}

/// Returns the name of a variable, or of the last field or method of an expression.
fn last_name(value: &Expr) -> Option<String> {
    match value {
        Expr::Field(field) => match &field.member {
            syn::Member::Named(name) => Some(name.to_string()),
            syn::Member::Unnamed(_) => None,
        },
        Expr::MethodCall(call) => Some(call.method.to_string()),
        Expr::Unary(unary) => last_name(&unary.expr),
        Expr::Binary(sum) => last_name(&sum.right),
        _ => expression_path(value)?.pop(),
    }
}

fn unsafe_functions(item: &syn::ItemImpl) -> impl Iterator<Item = usize> {
    item.items.iter().filter_map(|item| match item {
        syn::ImplItem::Fn(function) => function.sig.unsafety.map(|word| line(word.span)),
        _ => None,
    })
}

impl Visitor {
    fn scope(&mut self) -> &mut Module {
        self.parsed.modules.entry(self.module.clone()).or_default()
    }

    fn write(&mut self, line: usize, path: Vec<String>) {
        let (module, is_test, is_export) = (self.module.clone(), self.tests > 0, self.is_export);
        self.parsed.written.push(Written { line, module, path, is_test, is_export });
    }

    fn import(&mut self, prefix: &mut Vec<String>, tree: &UseTree) {
        let take = |visitor: &mut Self, own: &Ident, name: &Ident| {
            let mut path = prefix.clone();
            if own != "self" || path.is_empty() {
                path.push(own.to_string());
            }
            visitor.write(line(own.span()), path.clone());
            let name = if name == "self" { path.last().cloned().unwrap_or_default() } else { name.to_string() };
            if visitor.tests == 0 {
                visitor.scope().imports.insert(name, path);
            }
        };
        match tree {
            UseTree::Name(name) => take(self, &name.ident, &name.ident),
            UseTree::Rename(name) => take(self, &name.ident, &name.rename),
            UseTree::Path(path) => {
                prefix.push(path.ident.to_string());
                self.import(prefix, &path.tree);
                prefix.pop();
            }
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.import(prefix, tree)),
            UseTree::Glob(glob) => {
                self.write(line(glob.span()), prefix.clone());
                if self.tests == 0 {
                    let path = prefix.clone();
                    self.scope().globs.push(path);
                }
            }
        }
    }

    /// Reads the paths, functions and methods out of a macro's tokens.
    fn read_tokens(&mut self, tokens: TokenStream) {
        let trees: Vec<TokenTree> = tokens.into_iter().collect();
        let is_colon = |at: usize| matches!(trees.get(at), Some(TokenTree::Punct(punct)) if punct.as_char() == ':');
        let is_punct = |at: usize, wanted: char| matches!(trees.get(at), Some(TokenTree::Punct(punct)) if punct.as_char() == wanted);
        let (mut at, mut follows_test) = (0, false);
        while at < trees.len() {
            match &trees[at] {
                TokenTree::Group(group) => {
                    follows_test |= at > 0 && is_punct(at - 1, '#') && group.stream().to_string() == "test";
                    self.read_tokens(group.stream());
                }
                TokenTree::Ident(ident) if ident == "fn" => {
                    if let Some(TokenTree::Ident(name)) = trees.get(at + 1) {
                        let (line, name) = (line(name.span()), name.to_string());
                        self.parsed.functions.push(Function { line, name, is_test: follows_test, lines: 0 });
                        follows_test = false;
                        at += 1;
                    }
                }
                TokenTree::Ident(ident) if ident == "unsafe" => self.parsed.unsafe_lines.push(line(ident.span())),
                TokenTree::Ident(ident) => {
                    let (line, before) = (line(ident.span()), at.wrapping_sub(1));
                    let mut path = vec![ident.to_string()];
                    while is_colon(at + 1) && is_colon(at + 2) {
                        let Some(TokenTree::Ident(next)) = trees.get(at + 3) else { break };
                        path.push(next.to_string());
                        at += 3;
                    }
                    if is_punct(at + 1, '!') && !is_punct(at + 2, '=') {
                        path.last_mut().unwrap().push('!');
                    }
                    if !is_punct(before, '.') {
                        self.write(line, path);
                    } else if self.tests == 0 {
                        self.parsed.methods.push((line, path.remove(0)));
                    }
                }
                TokenTree::Literal(literal) => self.read_format(literal),
                TokenTree::Punct(_) => {}
            }
            at += 1;
        }
    }

    fn read_static(&mut self, item: &syn::ItemStatic, kind: StaticKind) {
        let mut words = Words::default();
        words.visit_type(&item.ty);
        words.visit_expr(&item.expr);
        let kind = if matches!(item.mutability, syn::StaticMutability::Mut(_)) { StaticKind::Mutable } else { kind };
        let (line, name, is_test) = (line(item.ident.span()), item.ident.to_string(), self.tests > 0);
        self.parsed.statics.push(Static { line, name, words: words.0, kind, is_test });
    }

    /// `thread_local! { static NAME: Type = const { value }; }`: the statics of each thread.
    fn read_thread_locals(&mut self, tokens: TokenStream) {
        let mut trees = tokens.into_iter();
        while let Some(tree) = trees.next() {
            if !matches!(&tree, TokenTree::Ident(ident) if ident == "static") {
                continue;
            }
            let Some(TokenTree::Ident(name)) = trees.next() else { continue };
            let words =
                trees.by_ref().take_while(|tree| !matches!(tree, TokenTree::Punct(end) if end.as_char() == ';'));
            let words = words.map(|tree| tree.to_string()).collect();
            let (line, name, is_test) = (line(name.span()), name.to_string(), self.tests > 0);
            self.parsed.statics.push(Static { line, name, words, kind: StaticKind::ThreadLocal, is_test });
        }
    }

    fn read_function(&mut self, name: &Ident, attributes: &[Attribute], body: Option<&syn::Block>) {
        let is_test = attributes.iter().any(|attribute| attribute.path().is_ident("test"));
        let start = line(name.span());
        let end = body.filter(|_| self.tests == 0).map(|body| line(body.brace_token.span.close()));
        let lines = end.map_or(0, |end| end - start + 1);
        self.parsed.functions.push(Function { line: start, name: name.to_string(), is_test, lines });
    }

    fn define(&mut self, item: &Item) {
        let (name, visibility, is_type) = match item {
            Item::Const(item) => (&item.ident, &item.vis, false),
            Item::Enum(item) => (&item.ident, &item.vis, true),
            Item::Fn(item) => (&item.sig.ident, &item.vis, false),
            Item::Static(item) => (&item.ident, &item.vis, false),
            Item::Struct(item) => (&item.ident, &item.vis, true),
            Item::Trait(item) => (&item.ident, &item.vis, true),
            Item::Type(item) => (&item.ident, &item.vis, true),
            _ => return,
        };
        self.scope().items.insert(name.to_string());
        if is_public(visibility) && is_type && self.module.is_empty() {
            self.parsed.public_types.push((line(name.span()), name.to_string()));
        } else if is_public(visibility) && !is_type {
            self.define_public(name, false);
        }
    }

    fn define_public(&mut self, name: &Ident, is_associated: bool) {
        if self.tests == 0 {
            let (line, name, module) = (line(name.span()), name.to_string(), self.module.clone());
            self.parsed.public_items.push(PublicItem { line, name, module, is_associated });
        }
    }

    /// Reads the names between the braces of a format string.
    fn read_format(&mut self, literal: &proc_macro2::Literal) {
        for part in literal.to_string().split('{').skip(1) {
            let is_name = |letter: &char| letter.is_alphanumeric() || *letter == '_';
            let name: String = part.chars().take_while(is_name).collect();
            if name.starts_with(char::is_alphabetic) {
                self.write(line(literal.span()), vec![name]);
            }
        }
    }
}

impl<'ast> Visit<'ast> for Visitor {
    fn visit_item(&mut self, item: &'ast Item) {
        let for_tests = usize::from(is_for_tests(attributes_of(item)));
        self.tests += for_tests;
        if self.tests == 0 {
            self.define(item);
        }
        visit::visit_item(self, item);
        self.tests -= for_tests;
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        let name = item.ident.to_string();
        if item.content.is_none() {
            if self.tests > 0 {
                self.parsed.test_modules.push(name);
            }
            return;
        }
        self.module.push(name);
        if self.tests == 0 {
            self.scope();
        }
        visit::visit_item_mod(self, item);
        self.module.pop();
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let mut prefix: Vec<String> = item.leading_colon.iter().map(|_| String::new()).collect();
        self.is_export = is_public(&item.vis);
        self.import(&mut prefix, &item.tree);
        self.is_export = false;
    }

    fn visit_item_static(&mut self, item: &'ast syn::ItemStatic) {
        self.read_static(item, StaticKind::Plain);
        visit::visit_item_static(self, item);
    }

    fn visit_item_foreign_mod(&mut self, item: &'ast syn::ItemForeignMod) {
        self.parsed.unsafe_lines.push(line(item.abi.extern_token.span));
        for item in &item.items {
            if let syn::ForeignItem::Static(item) = item {
                let (line, name, is_test) = (line(item.ident.span()), item.ident.to_string(), self.tests > 0);
                let words = BTreeSet::new();
                self.parsed.statics.push(Static { line, name, words, kind: StaticKind::Foreign, is_test });
            }
        }
        visit::visit_item_foreign_mod(self, item);
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.read_function(&item.sig.ident, &item.attrs, Some(&item.block));
        self.parsed.unsafe_lines.extend(item.sig.unsafety.map(|word| line(word.span)));
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        let for_tests = usize::from(is_for_tests(&item.attrs));
        self.tests += for_tests;
        self.read_function(&item.sig.ident, &item.attrs, Some(&item.block));
        if is_public(&item.vis) {
            self.define_public(&item.sig.ident, true);
        }
        visit::visit_impl_item_fn(self, item);
        self.tests -= for_tests;
    }

    fn visit_impl_item_const(&mut self, item: &'ast syn::ImplItemConst) {
        if is_public(&item.vis) {
            self.define_public(&item.ident, true);
        }
        visit::visit_impl_item_const(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        self.define_public(&item.sig.ident, true);
        self.read_function(&item.sig.ident, &item.attrs, item.default.as_ref());
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        match item.unsafety {
            // A reason on the implementation applies to its functions.
            Some(word) => self.parsed.unsafe_lines.push(line(word.span)),
            None => self.parsed.unsafe_lines.extend(unsafe_functions(item)),
        }
        visit::visit_item_impl(self, item);
    }

    fn visit_expr_unsafe(&mut self, block: &'ast syn::ExprUnsafe) {
        self.parsed.unsafe_lines.push(line(block.unsafe_token.span));
        visit::visit_expr_unsafe(self, block);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        if self.tests == 0 {
            self.parsed.methods.push((line(call.method.span()), call.method.to_string()));
        }
        visit::visit_expr_method_call(self, call);
    }

    fn visit_expr_binary(&mut self, sum: &'ast syn::ExprBinary) {
        if self.tests == 0
            && matches!(sum.op, BinOp::Add(_) | BinOp::Sub(_))
            && let Some(right) = expression_path(&sum.right)
        {
            let left = last_name(&sum.left).unwrap_or_default();
            self.parsed.sums.push(Sum { line: line(sum.span()), left, right });
        }
        visit::visit_expr_binary(self, sum);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let parts = path.segments.iter().map(|segment| segment.ident.to_string());
        let parts = path.leading_colon.iter().map(|_| String::new()).chain(parts).collect();
        self.write(line(path.span()), parts);
        visit::visit_path(self, path);
    }

    /// Reads the names of constants in patterns.
    fn visit_pat_ident(&mut self, pattern: &'ast syn::PatIdent) {
        let name = pattern.ident.to_string();
        if name.starts_with(char::is_uppercase) {
            self.write(line(pattern.ident.span()), vec![name]);
        }
        visit::visit_pat_ident(self, pattern);
    }

    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        let mut parts: Vec<String> = called.path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        let name = parts.last().cloned().unwrap_or_default();
        parts.last_mut().unwrap().push('!');
        self.write(line(called.path.span()), parts);
        if name == "thread_local" {
            self.read_thread_locals(called.tokens.clone());
        }
        self.read_tokens(called.tokens.clone());
    }

    /// Reads the names in attributes: derived code names functions in tokens, `serde` in strings.
    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        if let Meta::List(list) = &attribute.meta {
            self.read_tokens(list.tokens.clone());
            for tree in list.tokens.clone() {
                if let TokenTree::Literal(literal) = tree
                    && let Lit::Str(text) = Lit::new(literal)
                    && text.value().contains("::")
                    && let Ok(path) = text.parse::<syn::Path>()
                {
                    self.visit_path(&path);
                }
            }
        }
    }

    /// Skips `pub(super)` and the like, which use nothing of the module that they name.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}
}

/// Collects the words of types and of the functions that make a value.
#[derive(Default)]
struct Words(BTreeSet<String>);

impl<'ast> Visit<'ast> for Words {
    fn visit_ident(&mut self, ident: &'ast Ident) {
        self.0.insert(ident.to_string());
    }

    fn visit_expr(&mut self, value: &'ast Expr) {
        // The body of a closure runs once, in a `LazyLock`, and is not part of the static's value.
        if !matches!(value, Expr::Closure(_)) {
            visit::visit_expr(self, value);
        }
    }
}
