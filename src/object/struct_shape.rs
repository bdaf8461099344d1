//! Shapes of built-in types: which lists are maps or sets, and which maps and structs are atomic.
//!
//! Decides who owns what after server-side apply: an unlisted list is atomic; an unlisted map has an owner for each
//! field. Never: depends on a kind; the shapes of built-in kinds are in `kinds::shapes` and in each kind's file.

/// The fields of a built-in type that differ from the default.
#[derive(Debug)]
pub struct StructShape(&'static [(&'static str, FieldShape)]);

/// One field of a built-in type.
#[derive(Clone, Copy, Debug)]
pub struct FieldShape {
    /// The way in which the field's parts are owned.
    pub form: FieldForm,
    /// Whether Go embeds the struct by value. It then exists even in an empty object, so setting a field inside does
    /// not set it.
    pub in_place: bool,
    /// The type of the map, or of the list's items.
    pub of: &'static StructShape,
}

/// The ways in which the parts of a field are owned.
#[derive(Clone, Copy, Debug)]
pub enum FieldForm {
    /// A map with an owner for each field, or an atomic list.
    Plain,
    /// An atomic value.
    Atomic,
    /// A set of texts or numbers.
    Set,
    /// A list of maps, which these fields identify; a key may have a default.
    Keyed(&'static [(&'static str, Option<&'static str>)]),
    /// A list of atomic maps, which these fields identify.
    KeyedAtomic(&'static [(&'static str, Option<&'static str>)]),
}

impl StructShape {
    /// Creates a shape from the fields that differ from the default.
    pub const fn new(fields: &'static [(&'static str, FieldShape)]) -> StructShape {
        StructShape(fields)
    }

    /// The fields that differ from the default.
    pub fn fields(&self) -> impl Iterator<Item = (&'static str, FieldShape)> + use<> {
        self.0.iter().copied()
    }

    /// The shape of a field; an unlisted field is a map with an owner for each field, or an atomic list.
    pub fn field(&self, name: &str) -> FieldShape {
        self.0.iter().find(|(known, _)| *known == name).map_or(map(&UNLISTED), |(_, field)| *field)
    }
}

static UNLISTED: StructShape = StructShape::new(&[]);

/// A map of this type.
pub const fn map(of: &'static StructShape) -> FieldShape {
    FieldShape { form: FieldForm::Plain, in_place: false, of }
}

/// A struct that Go embeds by value.
pub const fn in_place(field: FieldShape) -> FieldShape {
    FieldShape { in_place: true, ..field }
}

/// A list of atomic maps, which these fields identify; a key may have a default.
pub const fn keyed_atomic_list(keys: &'static [(&'static str, Option<&'static str>)]) -> FieldShape {
    FieldShape { form: FieldForm::KeyedAtomic(keys), in_place: false, of: &UNLISTED }
}

/// A list of maps of this type, which these fields identify; a key may have a default.
pub const fn keyed_list(keys: &'static [(&'static str, Option<&'static str>)], of: &'static StructShape) -> FieldShape {
    FieldShape { form: FieldForm::Keyed(keys), in_place: false, of }
}
