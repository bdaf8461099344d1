//! Finds the Go type of a list's or map's elements, for the error when a value is neither a list nor a map.

use super::{DecodeError, TypedReader, go_types};
use serde::de::value::StringDeserializer;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

/// Poses as a list or map, so that its visitor reveals the element type, which Go's error contains.
pub(super) struct ElementGuess<'g, 'r, 'u> {
    pub(super) reader: &'g TypedReader<'r, 'u>,
    pub(super) prefix: &'static str,
}

impl ElementGuess<'_, '_, '_> {
    fn guess_error(&self, element: &str) -> DecodeError {
        self.reader.mismatch(&format!("{}{element}", self.prefix))
    }
}

impl<'de> SeqAccess<'de> for ElementGuess<'_, '_, '_> {
    type Error = DecodeError;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, DecodeError> {
        seed.deserialize(&*self).map(Some)
    }
}

impl<'de> MapAccess<'de> for ElementGuess<'_, '_, '_> {
    type Error = DecodeError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, DecodeError> {
        seed.deserialize(StringDeserializer::new(String::new())).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, DecodeError> {
        seed.deserialize(&*self)
    }
}

macro_rules! guesses {
    ($($method:ident $name:literal;)*) => {$(
        fn $method<V: Visitor<'de>>(self, _: V) -> Result<V::Value, DecodeError> {
            Err(self.guess_error($name))
        }
    )*};
}

impl<'de> Deserializer<'de> for &ElementGuess<'_, '_, '_> {
    type Error = DecodeError;

    guesses! {
        deserialize_any "interface {}";
        deserialize_bool "bool";
        deserialize_i8 "int8";
        deserialize_i16 "int16";
        deserialize_i32 "int32";
        deserialize_i64 "int64";
        deserialize_u8 "uint8";
        deserialize_u16 "uint16";
        deserialize_u32 "uint32";
        deserialize_u64 "uint64";
        deserialize_f32 "float32";
        deserialize_f64 "float64";
        deserialize_char "string";
        deserialize_str "[]uint8";
        deserialize_string "string";
        deserialize_bytes "uint8";
        deserialize_byte_buf "uint8";
        deserialize_unit "interface {}";
        deserialize_seq "[]string";
        deserialize_map "map[string]string";
        deserialize_identifier "string";
        deserialize_ignored_any "interface {}";
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_some(self)
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, name: &'static str, _: V) -> Result<V::Value, DecodeError> {
        Err(self.guess_error(&go_types::struct_type(name)))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, _: V) -> Result<V::Value, DecodeError> {
        // Every map of quantities has this type.
        Err(if name == "Quantity" {
            self.reader.mismatch("v1.ResourceList")
        } else {
            self.guess_error(&go_types::struct_type(name))
        })
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, _: V) -> Result<V::Value, DecodeError> {
        Err(self.guess_error("interface {}"))
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        _: usize,
        _: V,
    ) -> Result<V::Value, DecodeError> {
        Err(self.guess_error(&go_types::struct_type(name)))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        _: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, DecodeError> {
        Err(self.guess_error(&go_types::struct_type(name)))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        _: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, DecodeError> {
        Err(self.guess_error(&go_types::struct_type(name)))
    }
}
