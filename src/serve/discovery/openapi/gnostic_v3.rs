//! The messages of gnostic's `OpenAPIv3.proto`.
//!
//! Knows: their fields. Start reading at [`encode_document`].

use super::gnostic::GnosticForm::{
    Any, Anys, Bool, Double, Integer, Named, One, OrReference, OrReferences, Scalar, SchemaOrBool3, Text, Texts, Within,
};
use super::gnostic::GnosticMessage;
use serde_json::Value;

static DOCUMENT: GnosticMessage = GnosticMessage {
    fields: &[
        ("openapi", 1, Text),
        ("info", 2, One(&INFO)),
        ("paths", 4, Named(1, &One(&PATH_ITEM))),
        ("components", 5, One(&COMPONENTS)),
    ],
    extensions: 9,
};
static INFO: GnosticMessage = GnosticMessage { fields: &[("title", 1, Text), ("version", 6, Text)], extensions: 7 };
static COMPONENTS: GnosticMessage = GnosticMessage {
    fields: &[
        ("schemas", 1, Named(1, &OrReference(&SCHEMA))),
        ("securitySchemes", 7, Named(1, &OrReference(&SECURITY_SCHEME))),
    ],
    extensions: 10,
};
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

/// Encodes a document.
pub fn encode_document(document: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    DOCUMENT.write(&mut bytes, document);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn document_is_encoded_as_gnostic_reads_it() {
        let schema = json!({"type": "array", "items": {"$ref": "#/x"}, "default": "d", "x-y": [1]});
        let document = json!({
            "openapi": "3.0.0",
            "paths": {"/a": {"get": {"operationId": "o", "responses": {"200": {"description": "OK"}}}}},
            "components": {"schemas": {"S": schema}},
        });
        let bytes = encode_document(&document);
        let has = |part: &[u8]| bytes.windows(part.len()).any(|window| window == part);
        assert!(bytes.starts_with(b"\x0a\x053.0.0\x22"));
        assert!(has(b"\x0a\x03200\x12\x06\x0a\x04\x0a\x02OK"), "{bytes:?}");
        assert!(has(b"\xca\x01\x05array"), "{bytes:?}");
        assert!(has(b"\xf2\x01\x09\x0a\x07\x12\x05\x0a\x03#/x"), "{bytes:?}");
        assert!(has(b"\x8a\x02\x03\x1a\x01d"), "{bytes:?}");
        assert!(has(b"\xa2\x02\x0d\x0a\x03x-y\x12\x06\x12\x04[1]\n"), "{bytes:?}");
    }
}
