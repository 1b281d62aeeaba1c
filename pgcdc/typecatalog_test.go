package pgcdc

import (
	"strings"
	"testing"
)

// TestResolve holds the decisions that need no server: which numerics are decimals, that a domain's typmod counts, and
// what is refused with which words.
func TestResolve(t *testing.T) {
	numeric := func(precision, scale int32) int32 { return (precision<<16 | scale&0x7ff) + 4 }
	const user = 20000
	catalog := newTypeCatalog([]typeRow{
		{OID: user, Name: "price", Kind: 'd', Base: oidNumeric, BaseMod: numeric(12, 3)},
		{OID: user + 1, Name: "offer", Kind: 'd', Base: user, BaseMod: -1},
		{OID: user + 2, Name: "circle", Kind: 'd', Base: user + 2, BaseMod: -1},
		{OID: user + 3, Name: "pair", Kind: 'c'},
		{OID: user + 4, Name: "_pair", Kind: 'b', Elem: user + 3},
		{OID: user + 5, Name: "hstore", Extension: "hstore", Kind: 'b', HasSend: true},
		{OID: user + 6, Name: "vector", Extension: "vector", Kind: 'b', HasSend: true},
		{OID: user + 7, Name: "mood", Kind: 'e', HasSend: true},
		{OID: user + 8, Name: "geometry", Kind: 'b', Delim: ':', HasSend: true},
		{OID: user + 9, Name: "_geometry", Kind: 'b', Elem: user + 8},
		{OID: user + 10, Name: "cube", Kind: 'b', Delim: ',', HasSend: true},
		{OID: user + 11, Name: "_cube", Kind: 'b', Elem: user + 10},
		{OID: user + 12, Name: "offers", Kind: 'b', Elem: user + 1},
		{OID: user + 13, Name: "list", Kind: 'd', Base: 1007, BaseMod: -1},
		{OID: user + 14, Name: "_list", Kind: 'b', Elem: user + 13},
		{OID: user + 15, Name: "cstring", Kind: 'p'},
		{OID: user + 16, Name: "citext", Extension: "citext", Kind: 'b'},
		{OID: user + 17, Name: "halfvec", Extension: "vector", Kind: 'b', HasSend: true},
		{OID: user + 18, Name: "sparsevec", Extension: "vector", Kind: 'b', HasSend: true},
		{OID: user + 19, Name: "vector", Kind: 'b', HasSend: true},
		{OID: user + 20, Name: "hstore", Extension: "mine", Kind: 'b', HasSend: true},
		{OID: user + 21, Name: "_vector", Kind: 'b', Elem: user + 6},
		{OID: user + 22, Name: "embedding", Kind: 'd', Base: user + 6, BaseMod: 3},
		{OID: user + 23, Name: "both", Kind: 'd', Base: user + 3, BaseMod: -1},
		{OID: 1007, Name: "_int4", Kind: 'b', Elem: 23},
		{OID: 114, Name: "json", Kind: 'b'},
	})
	for _, c := range []struct {
		name        string
		oid         uint32
		mod         int32
		kind        Kind
		precision   int
		scale       int
		binary      bool
		unsupported string
	}{
		{"numeric", oidNumeric, -1, KindText, 0, 0, true, ""},
		{"numeric(38,38)", oidNumeric, numeric(38, 38), KindDecimal, 38, 38, true, ""},
		{"numeric(1,0)", oidNumeric, numeric(1, 0), KindDecimal, 1, 0, true, ""},
		{"numeric(39,0)", oidNumeric, numeric(39, 0), KindText, 0, 0, true, ""},
		{"numeric(10,-1)", oidNumeric, numeric(10, -1), KindText, 0, 0, true, ""},
		{"numeric(10,11)", oidNumeric, numeric(10, 11), KindText, 0, 0, true, ""},
		{"numeric(1000,1000)", oidNumeric, numeric(1000, 1000), KindText, 0, 0, true, ""},
		{"price", user, -1, KindDecimal, 12, 3, true, ""},
		{"offer", user + 1, -1, KindDecimal, 12, 3, true, ""},
		{"circle", user + 2, -1, KindInvalid, 0, 0, false, "no values"},
		{"pair", user + 3, -1, KindText, 0, 0, false, ""},
		{"pair[]", user + 4, -1, KindList, 0, 0, false, ""},
		{"both", user + 23, -1, KindText, 0, 0, false, ""},
		{"hstore", user + 5, -1, KindText, 0, 0, true, ""},
		{"vector(3)", user + 6, 3, KindList, 0, 0, true, ""},
		{"embedding", user + 22, -1, KindList, 0, 0, true, ""},
		{"halfvec(3)", user + 17, 3, KindList, 0, 0, true, ""},
		{"sparsevec", user + 18, -1, KindText, 0, 0, false, ""},
		{"a vector of somebody's own", user + 19, -1, KindText, 0, 0, false, ""},
		{"an hstore of somebody's own", user + 20, -1, KindText, 0, 0, false, ""},
		{"vector[]", user + 21, -1, KindInvalid, 0, 0, false, "arrays of arrays"},
		{"mood", user + 7, -1, KindText, 0, 0, true, ""},
		{"geometry", user + 8, -1, KindText, 0, 0, false, ""},
		{"geometry[]", user + 9, -1, KindList, 0, 0, false, ""},
		{"cube[]", user + 11, -1, KindList, 0, 0, false, ""},
		{"list[]", user + 14, -1, KindInvalid, 0, 0, false, "arrays of arrays"},
		{"cstring", user + 15, -1, KindInvalid, 0, 0, false, "no values"},
		{"citext without send function", user + 16, -1, KindText, 0, 0, false, ""},
		{"json without send function", 114, -1, KindJSON, 0, 0, false, ""},
		{"nothing", 99999, -1, KindInvalid, 0, 0, false, "not in the catalogue"},
	} {
		typ := catalog.resolve(c.oid, c.mod, c.name)
		if typ.OID != c.oid || typ.Mod != c.mod || typ.Name != c.name || typ.Kind != c.kind || typ.Precision != c.precision || typ.Scale != c.scale || typ.BinaryOK != c.binary {
			t.Errorf("%s resolved to %+v", c.name, typ)
		}
		if (typ.Unsupported == "") != (c.unsupported == "") || !strings.Contains(typ.Unsupported, c.unsupported) {
			t.Errorf("%s is unsupported because %q, want %q", c.name, typ.Unsupported, c.unsupported)
		}
	}
	if delim := catalog.resolve(user+9, -1, "geometry[]").delim; delim != ':' {
		t.Errorf("geometries are separated by %q", delim)
	}
	if elem := catalog.resolve(user+12, -1, "offer[]").Elem; elem == nil || elem.OID != user+1 || elem.Name != "offer" || elem.Kind != KindDecimal || elem.Scale != 3 {
		t.Errorf("the element of an array of domains is %+v", elem)
	}
	if elem := catalog.resolve(user+13, -1, "list").Elem; elem == nil || elem.OID != 23 || elem.Kind != KindInt4 {
		t.Errorf("the element of a domain over an array is %+v", elem)
	}
}
