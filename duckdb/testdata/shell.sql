SELECT 1::TINYINT AS a, 2::SMALLINT AS b, 3 AS c, 4::BIGINT AS d, 5::HUGEINT AS e, 6::UTINYINT AS f, 7::USMALLINT AS g, 8::UINTEGER AS h,
  9::UBIGINT AS i, 10::UHUGEINT AS j, 1.5::FLOAT AS k, 0.1::DOUBLE AS l, 1.50::DECIMAL(5,2) AS m, true AS n, NULL AS o, 'q"\/é' || chr(1) || chr(127) AS p,
  E'\b\f\n\r\t' AS q, '\x00ab'::BLOB AS r, 'c0ffee00-0000-0000-0000-000000000001'::UUID AS s, 'infinity'::DATE AS t, '01:02:03.5'::TIME AS u,
  '2020-01-01 00:00:00.12'::TIMESTAMP AS v, '2020-01-01 00:00:00+00'::TIMESTAMPTZ AS w, [1, NULL, 3] AS x, ['a"b', NULL, ''] AS y, {'a': 1, 'b': 'x'} AS z,
  MAP {'k': 1} AS aa, '{"a": [1]}'::JSON AS ab, 'nan'::DOUBLE AS ac, '-inf'::FLOAT AS ad, 1e20::DOUBLE AS ae, INTERVAL 1 DAY AS af, [1.50::DECIMAL(5,2)] AS ag,
  ['infinity'::DATE] AS ah, [['x']] AS ai, NULL::INTEGER[] AS aj, NULL::DOUBLE AS ak, 'z' AS "q""x", [1, 2]::INTEGER[2] AS al, '101'::BIT AS am, NULL::JSON AS an,
  ['\x00ab'::BLOB] AS ao, [1e20::DOUBLE, 'inf'] AS ap, -0.0::DOUBLE AS aq, 'a'::ENUM('a', 'b') AS ar, 123456789012345678901234567890::HUGEINT AS at_;
SELECT range AS r FROM range(3);
