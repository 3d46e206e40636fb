SELECT v.version || ' ' || TRIM(v.product) || ', ' || n.value
  FROM product_component_version v CROSS JOIN nls_database_parameters n WHERE v.product LIKE 'Oracle%' AND n.parameter = 'NLS_CHARACTERSET'
