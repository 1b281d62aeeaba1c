package pgcdc

import (
	"errors"
	"fmt"
	"reflect"
	"testing"
)

// testForms holds that a numeric in each form is, from its text and from its binary form, what the server makes of it by a cast that loses nothing, and
// not representable where there is none; a double is what the server's own cast to it gives.
func testForms(t *testing.T, server *decodeServer) {
	server.exec(t, `
		create table f(id int generated always as identity, v numeric);
		insert into f(v) select v::numeric from unnest(array['0','0.000','1','-1.10','0.005','0.0050','99999.99','99999.990','100000','99999.994','99999.995','-99999.99','-0.01','0.001','12345678901234567890123456789012345678',
			'1e38','1e-38','1e308','1.7976931348623157e308','1.7976931348623159e308','1e309','-1e400','4.9e-324','2.5e-324','2e-324','1e-400','0.1','0.30000000000000004','9007199254740993','123456789012345678901234567890.123456789',
			'1.00000000000000011102230246251565404236316680908203125','1.00000000000000011102230246251565404236316680908203124','NaN','Infinity','-Infinity']) v;
		select setseed(0.5);
		insert into f(v) select round(((random() - 0.5) * 10 ^ (random() * 12))::numeric, (random() * 6)::int) from generate_series(1, 300);
		insert into f(v) select (random()::text || (random() * 1e15)::bigint)::numeric * 10::numeric ^ (random() * 600 - 300)::int from generate_series(1, 100);
		create function cast_or_null(v text, to_type text) returns text language plpgsql as $$ declare r text; begin
			execute format('select format(''%%s'', %L::numeric::%s)', v, to_type) into r; return r; exception when numeric_value_out_of_range then return null; end $$`)
	numeric := newTypeCatalog([]typeRow{{OID: oidNumeric, Kind: 'b', HasSend: true}}).resolve(oidNumeric, -1, "numeric")
	for form, to := range map[string]string{"decimal(7,2)": "numeric(7,2)", "decimal(38,0)": "numeric(38,0)", "decimal(38,38)": "numeric(38,38)", "decimal(20,10)": "numeric(20,10)", "double": "float8", "text": ""} {
		parsed, err := ParseForm(form)
		if err != nil {
			t.Fatal(err)
		}
		typ := numeric.as(parsed)
		want := "cast_or_null(v::text, '" + to + "')"
		switch {
		case form == "text":
			want = "format('%s', v)"
		case form != "double": // a cast that changes the value is none
			want = fmt.Sprintf("case when v not in ('NaN', 'Infinity', '-Infinity') and %[1]s::numeric = v then %[1]s end", want)
		}
		texts, binaries := server.query(t, 0, "select v, "+want+" from f order by id"), server.query(t, 1, "select v from f order by id")
		held := 0
		for i, row := range texts {
			fromText, textErr := decodeCalls(typ, FormatText, row[0])
			fromBinary, binErr := decodeCalls(typ, FormatBinary, binaries[i][0])
			if !reflect.DeepEqual(fromText, fromBinary) || (textErr == nil) != (binErr == nil) {
				t.Errorf("%s as %s: text gives %v (%v), binary %v (%v)", row[0], form, fromText, textErr, fromBinary, binErr)
			}
			if row[1] == nil {
				if !errors.Is(textErr, ErrUnrepresentable) || len(fromText) > 0 {
					t.Errorf("%s as %s: %v, %v; the server has no such value", row[0], form, fromText, textErr)
				}
				continue
			}
			if textErr != nil || len(fromText) != 1 {
				t.Errorf("%s as %s: %v, %v", row[0], form, fromText, textErr)
				continue
			}
			held++
			server.checkScalar(t, typ, fromText[0], row[1])
		}
		if held < 5 {
			t.Errorf("only %d values can be %s", held, form)
		}
		// A value of eight bytes is a numeric too: 0.
		if bits, ok := typ.Word(binaries[0][0]); ok {
			t.Errorf("%s: a numeric was taken for the word %x", form, bits)
		}
	}
}

// TestFormsOfTypes holds what each form makes of a type, and of which types it makes nothing.
func TestFormsOfTypes(t *testing.T) {
	catalog := newTypeCatalog([]typeRow{
		{OID: 1007, Name: "_int4", Kind: 'b', Elem: 23}, {OID: 40001, Name: "ints", Kind: 'd', Base: 1007, BaseMod: -1}, {OID: 40002, Name: "_ints", Kind: 'b', Elem: 40001},
		{OID: 40003, Name: "price", Kind: 'd', Base: oidNumeric, BaseMod: numericMod(9, 2)}, {OID: 40004, Name: "pair", Kind: 'c'}, {OID: 1231, Name: "_numeric", Kind: 'b', Elem: oidNumeric},
	})
	for _, c := range []struct {
		oid              uint32
		mod              int32
		form             string
		kind             Kind // KindInvalid: refused
		precision, scale int
		binary, same     bool
	}{
		{25, -1, "text", KindText, 0, 0, true, true}, {3802, -1, "text", KindJSON, 0, 0, true, true}, {40004, -1, "text", KindText, 0, 0, false, true}, {oidNumeric, -1, "text", KindText, 0, 0, true, true},
		{23, -1, "text", KindText, 0, 0, false, false}, {1083, -1, "text", KindText, 0, 0, false, false}, {1007, -1, "text", KindText, 0, 0, false, false}, {40002, -1, "text", KindText, 0, 0, false, false},
		{oidNumeric, numericMod(9, 2), "text", KindText, 0, 0, true, false}, {40003, -1, "text", KindText, 0, 0, true, false},
		{oidNumeric, numericMod(9, 2), "decimal(9,2)", KindDecimal, 9, 2, true, true}, {oidNumeric, numericMod(9, 2), "decimal(18,4)", KindDecimal, 18, 4, true, false}, {oidNumeric, -1, "decimal(38,0)", KindDecimal, 38, 0, true, false},
		{oidNumeric, numericMod(50, 2), "decimal(38,2)", KindDecimal, 38, 2, true, false}, {40003, -1, "double", KindFloat8, 0, 0, true, false}, {oidNumeric, -1, "double", KindFloat8, 0, 0, true, false},
		{23, -1, "double", KindInvalid, 0, 0, false, false}, {25, -1, "decimal(9,2)", KindInvalid, 0, 0, false, false}, {701, -1, "double", KindInvalid, 0, 0, false, false}, {1231, -1, "decimal(9,2)", KindInvalid, 0, 0, false, false},
	} {
		form, err := ParseForm(c.form)
		if err != nil || form.String() != c.form {
			t.Fatalf("%s: %s, %v", c.form, form, err)
		}
		typ := catalog.resolve(c.oid, c.mod, "a type")
		before := *typ
		got := typ.as(form)
		if got.Kind != c.kind || got.Precision != c.precision || got.Scale != c.scale || got.BinaryOK != c.binary || (got == typ) != c.same || (got.Unsupported == "") != (c.kind != KindInvalid) ||
			got.OID != c.oid || got.Mod != c.mod || *typ != before {
			t.Errorf("type %d(%d) as %s: %+v", c.oid, c.mod, c.form, got)
		}
	}
}

// TestFormIsPartOfTheTable holds that a form changes the fingerprint exactly if it changes what a column is, and that a key cannot be a double.
func TestFormIsPartOfTheTable(t *testing.T) {
	table := func(forms map[string]string) Table {
		r := plainRelation("t", "p").relationRow
		r.table = Table{OID: 1, Schema: "public", Name: "t", Kind: 'r', Persistence: 'p', Identity: IdentityDefault}
		r.attributes = []attributeRow{{attNum: 1, name: "id", typeOID: oidNumeric, typeMod: -1, format: "numeric", notNull: true}, {attNum: 2, name: "n", typeOID: oidNumeric, typeMod: -1, format: "numeric"}}
		r.forms = map[ColumnName]Form{{"public", "other", "n"}: {kind: KindText}}
		for column, text := range forms {
			form, err := ParseForm(text)
			if err != nil {
				t.Fatal(err)
			}
			r.forms[ColumnName{"public", "t", column}] = form
		}
		r.complete(newTypeCatalog(nil))
		return r.table
	}
	plain := table(nil)
	seen := map[string]string{plain.Fingerprint: "nothing"}
	for _, form := range []string{"decimal(9,2)", "decimal(9,3)", "decimal(10,2)", "double"} {
		now := table(map[string]string{"n": form})
		if before, twice := seen[now.Fingerprint]; twice || now.Columns[1].Form != form || now.Unsupported != "" {
			t.Errorf("%s: %+v, as %s", form, now, before)
		}
		seen[now.Fingerprint] = form
	}
	if now := table(map[string]string{"n": "text", "gone": "double"}); now.Fingerprint != plain.Fingerprint || now.Columns[1].Form != "" {
		t.Errorf("forms that change nothing: %+v", now)
	}
	if now := table(map[string]string{"id": "double"}); now.Unsupported == "" {
		t.Error("a key is a double")
	}
	if now := table(map[string]string{"id": "decimal(20,0)"}); now.Unsupported != "" || now.Fingerprint == plain.Fingerprint {
		t.Errorf("a key that is a decimal: %+v", now)
	}
}

// numericMod is the typmod of numeric(precision, scale).
func numericMod(precision, scale int) int32 { return int32(precision<<16|scale&0x7ff) + 4 }
