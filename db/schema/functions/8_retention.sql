-- Legal holds.

-- Return the holds that cover a call: on itself, on one of its numbers, or on a contact that is linked to it or has one of
-- its numbers.
CREATE OR REPLACE FUNCTION holds_on(covered calls) RETURNS SETOF legal_holds LANGUAGE sql STABLE AS $$
    SELECT h.* FROM legal_holds h
    WHERE h.workspace_id = covered.workspace_id AND h.released_at IS NULL AND CASE h.kind
        WHEN 'call' THEN h.subject = covered.call_id::text
        WHEN 'number' THEN
            h.subject IN (covered.from_e164, covered.to_e164, covered.from_number, covered.to_number)
        ELSE EXISTS (
            SELECT FROM contacts k WHERE k.id = h.subject::uuid AND (
                k.phone IN (covered.from_e164, covered.to_e164)
                OR EXISTS (SELECT FROM call_contacts l WHERE l.call_pk = covered.id AND l.contact_id = k.id)
                OR EXISTS (SELECT FROM corrections e WHERE e.call_pk = covered.id AND e.contact_id = k.id)
            )
        )
    END
    ORDER BY h.set_at, h.id
$$;

CREATE OR REPLACE FUNCTION is_on_hold(covered calls) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM holds_on(covered))
$$;
