package pgcdc

import "strings"

// typeRow is what pg_type (and pg_enum) say of one type.
type typeRow struct {
	OID    uint32
	Name   string // typname
	Schema string // the name of typnamespace
	// Extension is the name of the extension that made the type, or empty. OIDs of its types differ between databases, and so
	// may the schema; anybody may give a type of his own the same name.
	Extension string
	Kind      byte   // typtype: b base, c composite, d domain, e enum, m multirange, p pseudo, r range
	Category  byte   // typcategory
	Base      uint32 // typbasetype: what a domain is over
	BaseMod   int32  // typtypmod: a domain's typmod for its base
	Elem      uint32 // typelem of a true array (typsubscript = 'array_subscript_handler'::regproc), else 0
	Delim     byte   // typdelim: what separates the elements of an array of this type
	HasSend   bool   // typsend <> 0, and it can be relied on
	// Subtype is what a range's bounds are of, and for a multirange its range; else 0.
	Subtype uint32
	// Attributes are a composite's, without those that were dropped, in order.
	Attributes []typeAttribute
	// EnumLabels holds an enum's labels in order.
	EnumLabels []string
}

// typeAttribute is one attribute of a composite type.
type typeAttribute struct {
	attNum  int16
	typeOID uint32
	typeMod int32
}

// binaryForm is what a KindText type's send function writes, or that of a KindList that is no array.
type binaryForm uint8

const (
	formUnset    binaryForm = iota
	formNone                // nothing we read: the stream must be text
	formVerbatim            // the text itself
	formJSONB               // a version byte, then the text
	formChar                // "char": one byte
	formNumeric
	formInterval
	formTimeTZ
	formInet
	formMACAddr
	formMACAddr8
	formBits
	formUint32
	formUint64
	formTID
	formLSN
	formHstore
	formVector  // KindList of real: pgvector's vector
	formHalfvec // KindList of real: pgvector's halfvec
)

// builtinType is how a type whose OID is the same on every server is mirrored. form is used by KindText and KindJSON.
type builtinType struct {
	kind Kind
	form binaryForm
}

const (
	oidNumeric = 1700
	oidFloat4  = 700
)

// extensionType is a type of an extension, which is known by the extension's name and its own.
type extensionType struct{ extension, name string }

// extensionTypes are the base types of extensions that have a kind or a binary form of their own. All others are text.
var extensionTypes = map[extensionType]builtinType{
	{"citext", "citext"}:  {KindText, formVerbatim},
	{"hstore", "hstore"}:  {KindText, formHstore},
	{"vector", "vector"}:  {KindList, formVector},
	{"vector", "halfvec"}: {KindList, formHalfvec},
}

// builtinTypes are the types with a kind or a binary form of their own, by their OID in pg_type.dat. All others are text
// that only the output function can print.
var builtinTypes = map[uint32]builtinType{
	16:         {kind: KindBool},
	17:         {kind: KindBytea},
	18:         {KindText, formChar},
	19:         {KindText, formVerbatim}, // name
	20:         {kind: KindInt8},
	21:         {kind: KindInt2},
	22:         {KindText, formNone}, // int2vector: an array to the catalogue, but printed without braces
	23:         {kind: KindInt4},
	25:         {KindText, formVerbatim}, // text
	26:         {kind: KindOID},
	27:         {KindText, formTID},
	28:         {KindText, formUint32}, // xid
	29:         {KindText, formUint32}, // cid
	30:         {KindText, formNone},   // oidvector, like int2vector
	114:        {KindJSON, formVerbatim},
	142:        {KindText, formVerbatim}, // xml: its declaration names no encoding while client_encoding is UTF8
	650:        {KindText, formInet},     // cidr
	oidFloat4:  {kind: KindFloat4},
	701:        {kind: KindFloat8},
	705:        {KindText, formVerbatim}, // unknown
	774:        {KindText, formMACAddr8},
	829:        {KindText, formMACAddr},
	869:        {KindText, formInet},
	1042:       {KindText, formVerbatim}, // char(n), padded with blanks by both functions
	1043:       {KindText, formVerbatim}, // varchar
	1082:       {kind: KindDate},
	1083:       {kind: KindTime},
	1114:       {kind: KindTimestamp},
	1184:       {kind: KindTimestampTZ},
	1186:       {KindText, formInterval},
	1266:       {KindText, formTimeTZ},
	1560:       {KindText, formBits},     // bit
	1562:       {KindText, formBits},     // varbit
	oidNumeric: {KindText, formNumeric},  // KindDecimal when its typmod allows
	1790:       {KindText, formVerbatim}, // refcursor
	2950:       {kind: KindUUID},
	3220:       {KindText, formLSN},
	3802:       {KindJSON, formJSONB},
	5069:       {KindText, formUint64}, // xid8
}

// decimalMax is the most digits that Iceberg's decimal holds.
const decimalMax = 38

// domainDepthMax bounds the walk down domains over domains, should the catalogue ever hold a circle.
const domainDepthMax = 100

// whatToDo ends the reasons for not mirroring a type.
const whatToDo = "; make the column text with the setting types, or take the table out of the publication"

// typeCatalog knows a server's types, as one look at its catalogue found them. It never changes.
type typeCatalog struct {
	types map[uint32]typeRow
}

func newTypeCatalog(rows []typeRow) *typeCatalog {
	c := &typeCatalog{types: make(map[uint32]typeRow, len(rows))}
	for _, row := range rows {
		c.types[row.OID] = row
	}
	return c
}

// resolve says how a column of type oid with typmod mod is mirrored; formatted is format_type(oid, mod). The result is
// new, and is never changed afterwards. Types it cannot hold have Unsupported set and Kind KindInvalid.
func (c *typeCatalog) resolve(oid uint32, mod int32, formatted string) *Type {
	t := &Type{OID: oid, Mod: mod, Name: formatted}
	row, known := c.types[oid]
	for depth := 0; known && row.Kind == 'd' && depth < domainDepthMax; depth++ {
		oid, mod = row.Base, row.BaseMod
		row, known = c.types[oid]
	}
	t.base = oid
	if builtin, ok := builtinTypes[oid]; ok {
		t.Kind, t.form = builtin.kind, builtin.form
		if oid == oidNumeric {
			t.resolveNumeric(mod)
		}
		t.BinaryOK = t.form != formNone && (!known || row.HasSend)
		return t
	}
	switch {
	case !known:
		t.Unsupported = "type " + formatted + " is not in the catalogue"
	case row.Elem != 0:
		c.resolveList(t, row, mod)
	case row.Kind == 'p' || row.Kind == 'd':
		t.Unsupported = "type " + formatted + " has no values that could be mirrored"
	case row.Kind == 'e':
		t.Kind, t.form, t.BinaryOK = KindText, formVerbatim, row.HasSend
	default:
		t.resolveOther(row)
	}
	return t
}

// resolveOther makes a type of an extension what that says, and every other, composites too, the text that it prints.
func (t *Type) resolveOther(row typeRow) {
	known, ok := extensionTypes[extensionType{row.Extension, row.Name}]
	if !ok || row.Kind != 'b' {
		t.Kind, t.form = KindText, formNone
		return
	}
	t.Kind, t.form, t.BinaryOK = known.kind, known.form, row.HasSend
	if t.Kind == KindList {
		t.Elem = &Type{OID: oidFloat4, Mod: -1, Name: "real", Kind: KindFloat4, BinaryOK: true, base: oidFloat4}
	}
}

// resolveNumeric makes a numeric with a suitable typmod a decimal.
func (t *Type) resolveNumeric(mod int32) {
	if precision, scale, ok := numericTypmod(mod); ok && precision <= decimalMax && scale >= 0 && scale <= precision {
		t.Kind, t.form = KindDecimal, formUnset
		t.Precision, t.Scale = precision, scale
	}
}

// numericTypmod takes a numeric's typmod apart. It holds the precision in its upper half and the scale, which may be negative from
// PostgreSQL 15 on, in its lowest 11 bits (make_numeric_typmod in numeric.c).
func numericTypmod(mod int32) (precision, scale int, ok bool) {
	const header = 4 // VARHDRSZ
	if mod < header {
		return 0, 0, false
	}
	precision = int((mod - header) >> 16 & 0xffff)
	scale = int((mod-header)&0x7ff^1024) - 1024
	return precision, scale, precision >= 1
}

// resolveList makes t a list; an array's typmod is that of its elements.
func (c *typeCatalog) resolveList(t *Type, row typeRow, mod int32) {
	name, isArrayName := strings.CutSuffix(t.Name, "[]")
	if !isArrayName { // t is a domain over an array
		name = c.types[row.Elem].Name
	}
	elem := c.resolve(row.Elem, mod, name)
	switch {
	case elem.Unsupported != "":
		t.Unsupported = elem.Unsupported
		return
	case elem.Kind == KindList:
		t.Unsupported = "arrays of arrays such as " + t.Name + " cannot be mirrored" + whatToDo
		return
	}
	if t.delim = c.types[elem.base].Delim; t.delim == 0 {
		t.delim = ',' // a built-in type that the look did not read
	}
	t.Kind, t.Elem, t.BinaryOK = KindList, elem, elem.BinaryOK
}
