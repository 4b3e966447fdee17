ALTER TABLE submissions ADD COLUMN traceparent text;
