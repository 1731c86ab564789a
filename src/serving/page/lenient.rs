//! Reading JSON whose fields may be null, of another type, or more than anybody expects.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::MOST;

/// Longest text taken over, in bytes.
pub(super) const TEXT: usize = 256;

/// A single value; lists and objects are passed over.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) enum Scalar {
    Flag(bool),
    Number(f64),
    /// Cut at [`TEXT`] bytes.
    Text(Arc<str>),
    /// Null, a list or an object.
    #[default]
    Other,
}

impl Scalar {
    /// As a number, also where it is written as text.
    pub(super) fn number(&self) -> Option<f64> {
        match self {
            Scalar::Number(n) => Some(*n),
            Scalar::Text(text) => text.trim().parse().ok().filter(|n: &f64| n.is_finite()),
            Scalar::Flag(_) | Scalar::Other => None,
        }
    }

    /// As text, where it is one and says something.
    pub(super) fn text(&self) -> Option<&Arc<str>> {
        match self {
            Scalar::Text(text) if !text.is_empty() => Some(text),
            _ => None,
        }
    }

    pub(super) fn flag(&self) -> Option<bool> {
        match self {
            Scalar::Flag(flag) => Some(*flag),
            _ => None,
        }
    }
}

/// The beginning of a text.
pub(super) fn cut(text: &str) -> &str {
    let mut end = text.len().min(TEXT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Scalar, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Scalar;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("anything")
            }

            fn visit_bool<E>(self, v: bool) -> Result<Scalar, E> {
                Ok(Scalar::Flag(v))
            }

            fn visit_i64<E>(self, v: i64) -> Result<Scalar, E> {
                Ok(Scalar::Number(v as f64))
            }

            fn visit_u64<E>(self, v: u64) -> Result<Scalar, E> {
                Ok(Scalar::Number(v as f64))
            }

            fn visit_f64<E>(self, v: f64) -> Result<Scalar, E> {
                Ok(Scalar::Number(v))
            }

            fn visit_str<E>(self, v: &str) -> Result<Scalar, E> {
                Ok(Scalar::Text(cut(v).into()))
            }

            fn visit_unit<E>(self) -> Result<Scalar, E> {
                Ok(Scalar::Other)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Scalar, A::Error> {
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Scalar::Other)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Scalar, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Scalar::Other)
            }
        }
        deserializer.deserialize_any(Any)
    }
}

/// A list of which [`MOST`] are kept; anything else than a list is an empty one.
#[derive(Debug, Clone)]
pub(super) struct Some1024<T>(pub(super) Vec<T>);

impl<T> Default for Some1024<T> {
    fn default() -> Some1024<T> {
        Some1024(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Some1024<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Some1024<T>, D::Error> {
        struct List<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for List<T> {
            type Value = Some1024<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_unit<E>(self) -> Result<Some1024<T>, E> {
                Ok(Some1024(Vec::new()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Some1024<T>, A::Error> {
                let mut out = Vec::new();
                while out.len() < MOST {
                    match seq.next_element()? {
                        Some(item) => out.push(item),
                        None => return Ok(Some1024(out)),
                    }
                }
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Some1024(out))
            }
        }
        deserializer.deserialize_any(List(PhantomData))
    }
}

/// An object whose fields are read one by one, so that one that is named twice costs nothing.
pub(super) trait Fields: Default {
    /// Takes a field; its value must be read by `map`, whatever it is.
    fn field<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error>;
}

/// Reads an object by its [`Fields`].
pub(super) struct Object<T>(pub(super) T);

impl<'de, T: Fields> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Object<T>, D::Error> {
        struct Read<T>(PhantomData<T>);
        impl<'de, T: Fields> Visitor<'de> for Read<T> {
            type Value = Object<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object<T>, A::Error> {
                let mut out = T::default();
                // The name is copied: it may hold escapes.
                while let Some(name) = map.next_key::<String>()? {
                    out.field(&name, &mut map)?;
                }
                Ok(Object(out))
            }
        }
        deserializer.deserialize_map(Read(PhantomData))
    }
}
