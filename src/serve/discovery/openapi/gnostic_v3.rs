//! The messages of gnostic's `OpenAPIv3.proto`.
//!
//! Knows: their fields. Start reading at [`DOCUMENT`].

use super::gnostic::GnosticForm::{
    Any, Anys, Bool, Double, Integer, Named, One, OrReference, OrReferences, Scalar, SchemaOrBool3, Text, Texts, Within,
};
use super::gnostic::{GnosticForm, GnosticMessage};

/// The number of the field of paths.
pub const PATHS: u32 = 4;
/// The number of the field of components.
pub const COMPONENTS_NUMBER: u32 = 5;
/// The number of the components' field of schemas.
pub const SCHEMAS: u32 = 1;
/// The number and the encoding of a path.
pub const PATH_ENTRY: (u32, GnosticForm) = (1, One(&PATH_ITEM));
/// The number and the encoding of a schema.
pub const SCHEMA_ENTRY: (u32, GnosticForm) = (1, OrReference(&SCHEMA));

/// A document without paths and components, which are encoded one by one.
pub static DOCUMENT: GnosticMessage =
    GnosticMessage { fields: &[("openapi", 1, Text), ("info", 2, One(&INFO))], extensions: 9 };
static INFO: GnosticMessage = GnosticMessage { fields: &[("title", 1, Text), ("version", 6, Text)], extensions: 7 };
/// The components without schemas.
pub static COMPONENTS: GnosticMessage =
    GnosticMessage { fields: &[("securitySchemes", 7, Named(1, &OrReference(&SECURITY_SCHEME)))], extensions: 10 };
static SECURITY_SCHEME: GnosticMessage = GnosticMessage {
    fields: &[
        ("type", 1, Text),
        ("description", 2, Text),
        ("name", 3, Text),
        ("in", 4, Text),
        ("scheme", 5, Text),
        ("bearerFormat", 6, Text),
    ],
    extensions: 9,
};
static PATH_ITEM: GnosticMessage = GnosticMessage {
    fields: &[
        ("get", 4, One(&OPERATION)),
        ("put", 5, One(&OPERATION)),
        ("post", 6, One(&OPERATION)),
        ("delete", 7, One(&OPERATION)),
        ("options", 8, One(&OPERATION)),
        ("head", 9, One(&OPERATION)),
        ("patch", 10, One(&OPERATION)),
        ("parameters", 13, OrReferences(&PARAMETER)),
    ],
    extensions: 14,
};
static OPERATION: GnosticMessage = GnosticMessage {
    fields: &[
        ("tags", 1, Texts),
        ("summary", 2, Text),
        ("description", 3, Text),
        ("operationId", 5, Text),
        ("parameters", 6, OrReferences(&PARAMETER)),
        ("requestBody", 7, OrReference(&REQUEST_BODY)),
        ("responses", 8, Named(2, &OrReference(&RESPONSE))),
        ("deprecated", 10, Bool),
    ],
    extensions: 13,
};
static PARAMETER: GnosticMessage = GnosticMessage {
    fields: &[
        ("name", 1, Text),
        ("in", 2, Text),
        ("description", 3, Text),
        ("required", 4, Bool),
        ("schema", 10, OrReference(&SCHEMA)),
    ],
    extensions: 14,
};
static REQUEST_BODY: GnosticMessage = GnosticMessage {
    fields: &[("description", 1, Text), ("content", 2, Named(1, &One(&MEDIA_TYPE))), ("required", 3, Bool)],
    extensions: 4,
};
static RESPONSE: GnosticMessage =
    GnosticMessage { fields: &[("description", 1, Text), ("content", 3, Named(1, &One(&MEDIA_TYPE)))], extensions: 5 };
static MEDIA_TYPE: GnosticMessage = GnosticMessage { fields: &[("schema", 1, OrReference(&SCHEMA))], extensions: 5 };
static SCHEMA: GnosticMessage = GnosticMessage {
    fields: &[
        ("nullable", 1, Bool),
        ("example", 7, Any),
        ("title", 9, Text),
        ("multipleOf", 10, Double),
        ("maximum", 11, Double),
        ("exclusiveMaximum", 12, Bool),
        ("minimum", 13, Double),
        ("exclusiveMinimum", 14, Bool),
        ("maxLength", 15, Integer),
        ("minLength", 16, Integer),
        ("pattern", 17, Text),
        ("maxItems", 18, Integer),
        ("minItems", 19, Integer),
        ("uniqueItems", 20, Bool),
        ("maxProperties", 21, Integer),
        ("minProperties", 22, Integer),
        ("required", 23, Texts),
        ("enum", 24, Anys),
        ("type", 25, Text),
        ("allOf", 26, OrReferences(&SCHEMA)),
        ("oneOf", 27, OrReferences(&SCHEMA)),
        ("anyOf", 28, OrReferences(&SCHEMA)),
        ("not", 29, One(&SCHEMA)),
        ("items", 30, Within(&[1], &OrReference(&SCHEMA))),
        ("properties", 31, Named(1, &OrReference(&SCHEMA))),
        ("additionalProperties", 32, SchemaOrBool3(&SCHEMA)),
        ("default", 33, Scalar),
        ("description", 34, Text),
        ("format", 35, Text),
    ],
    extensions: 36,
};
